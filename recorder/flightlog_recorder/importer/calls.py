"""Tool calls and their results: ids repeat, are missing, and results may stand before calls."""

from collections import defaultdict
from typing import Any

import msgspec

from flightlog_recorder.importer.drafts import Drafts
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Record

RESULT = "tool_result"


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A call as its source has it; `answer` is the index of the model_response that asked for it.

    `record` is what a result may name it by beside its id; `minted` says that the id is ours.
    """

    call_id: str
    name: str | None
    arguments: Any
    source: dict[str, Any]
    answer: int
    record: object = None
    minted: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A result as its source has it: the payload it `said`, and what it names its call by."""

    call_id: str | None
    said: dict[str, Any]
    record: object = None


class OpenCall(msgspec.Struct, frozen=True):
    """A call without a result so far."""

    index: int
    line: int
    call_id: str
    announced_by: int
    record: object
    minted: bool


class Calls:
    """The calls of a transcript, from their start to their result.

    `expected` are the ids of all calls in the file: a result that stands before its call waits.
    """

    def __init__(self, drafts: Drafts, report: Report, *, expected: frozenset[str]) -> None:
        self._drafts, self._report, self._expected = drafts, report, expected
        self._open: dict[str, list[OpenCall]] = defaultdict(list)
        self._started: set[str] = set()
        self._by_answer: dict[int, set[str]] = defaultdict(set)
        self._early: dict[str, list[tuple[Record, Finished]]] = defaultdict(list)

    def of(self, answer: int) -> set[str]:
        """The ids that an answer's calls have so far."""
        return self._by_answer[answer]

    def start(self, record: Record, call: Started) -> None:
        """Add the tool_call, and the results that were waiting for it.

        Nobody declared what a restart may do with it. It ran in another program, so whoever opens
        the session must neither run it nor wait for a person: `fail`.
        """
        if call.name is None:
            self._report.flag(record.line, "a tool call without a name")
        announced_by = self._drafts.seq(call.answer)
        started = {
            "name": call.name or "unnamed",
            "call_id": call.call_id,
            "announced_by": announced_by,
            "arguments": call.arguments,
            "on_resume": "fail",
            "source": call.source,
        }
        index = self._drafts.add("tool_call", started, record)
        self._open[call.call_id].append(
            OpenCall(index, record.line, call.call_id, announced_by, call.record, call.minted)
        )
        self._started.add(call.call_id)
        self._by_answer[call.answer].add(call.call_id)
        for early, result in self._early.pop(call.call_id, []):
            self.finish(early, result)

    def finish(self, record: Record, result: Finished) -> None:
        """Add the tool_result, now or as soon as its call is there."""
        call_id = result.call_id
        if call_id and call_id in self._expected and call_id not in self._started:
            self._early[call_id].append((record, result))
        elif call := self._take(result):
            named = {"call_id": call.call_id, "announced_by": call.announced_by}
            self._drafts.add(RESULT, {**named, **result.said}, record, parent=call.index)
        elif call_id in self._started:
            self._drafts.keep(record, kind=RESULT, why="a second result of one tool call")
        else:
            self._orphan(record, result)

    def close(self) -> None:
        """Say which calls and results stayed alone; the log is given nothing in their place."""
        for early in self._early.values():
            for record, result in early:
                self._orphan(record, result)
        alone = sorted((call for calls in self._open.values() for call in calls), key=_start)
        self._report.orphan_calls = len(alone)
        for call in alone:
            self._report.flag(call.line, "a tool call without a result")

    def _take(self, result: Finished) -> OpenCall | None:
        """Among calls of one id the one whose record the result names, else the latest."""
        call_id, by = result.call_id, result.record
        if call_id is not None:
            waiting = self._open.get(call_id, [])
            named = [call for call in waiting if by and call.record == by]
            found = next(iter(named or waiting[-1:]), None)
        else:
            waiting = sorted((c for calls in self._open.values() for c in calls), key=_start)
            found = next((c for c in waiting if c.minted and by and c.record == by), None)
        if found:
            self._open[found.call_id].remove(found)
        return found

    def _orphan(self, record: Record, result: Finished) -> None:
        self._report.orphan_results += 1
        self._report.flag(record.line, "a tool result without a call")
        self._drafts.add(RESULT, {"call_id": result.call_id or "", **result.said}, record)


def _start(call: OpenCall) -> int:
    return call.index
