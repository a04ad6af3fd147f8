"""Tool calls and their results: ids repeat, are missing, and results may stand before calls."""

from collections import defaultdict
from typing import Any

import msgspec

from flightlog_recorder.importer.answers import Answer
from flightlog_recorder.importer.drafts import Drafts, source
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Record, plain

RESULT = "tool_result"


class OpenCall(msgspec.Struct, frozen=True):
    """A call without a result so far; `uuid` names the record that announced it."""

    index: int
    line: int
    call_id: str
    announced_by: int
    uuid: object
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
        self._early: dict[str, list[tuple[Record, dict[str, Any]]]] = defaultdict(list)

    def of(self, answer: Answer) -> set[str]:
        """The ids that an answer's calls have so far."""
        return self._by_answer[answer.index]

    def start(self, record: Record, block: dict[str, Any], *, answer: Answer, minted: bool) -> None:
        """Add the tool_call of a tool_use block, and the results that were waiting for it.

        Nobody declared what a restart may do with it. It ran in another program, so whoever opens
        the session must neither run it nor wait for a person: `fail`.
        """
        call_id, name = block["id"], plain(block.get("name"))
        if name is None:
            self._report.flag(record.line, "a tool call without a name")
        announced_by = self._drafts.seq(answer.index)
        call = {
            "name": name or "unnamed",
            "call_id": call_id,
            "announced_by": announced_by,
            "arguments": block.get("input"),
            "on_resume": "fail",
            "source": {"line": record.line, "at": record.offset},
        }
        index = self._drafts.add("tool_call", call, record)
        uuid = record.fields.get("uuid")
        self._open[call_id].append(
            OpenCall(index, record.line, call_id, announced_by, uuid, minted)
        )
        self._started.add(call_id)
        self._by_answer[answer.index].add(call_id)
        for early, result in self._early.pop(call_id, []):
            self.finish(early, result)

    def finish(self, record: Record, block: dict[str, Any]) -> None:
        """Add the tool_result of a tool_result block, now or as soon as its call is there."""
        call_id = str(block["tool_use_id"]) if block.get("tool_use_id") else None
        if call_id and call_id in self._expected and call_id not in self._started:
            self._early[call_id].append((record, block))
        elif call := self._take(call_id, record.fields):
            result = {"call_id": call.call_id, "announced_by": call.announced_by}
            self._add(record, block, result, parent=call.index)
        elif call_id in self._started:
            self._drafts.keep(record, kind=RESULT, why="a second result of one tool call")
        else:
            self._orphan(record, block)

    def close(self) -> None:
        """Say which calls and results stayed alone; the log is given nothing in their place."""
        for early in self._early.values():
            for record, block in early:
                self._orphan(record, block)
        alone = sorted((call for calls in self._open.values() for call in calls), key=_start)
        self._report.orphan_calls = len(alone)
        for call in alone:
            self._report.flag(call.line, "a tool call without a result")

    def _take(self, call_id: str | None, fields: dict[str, Any]) -> OpenCall | None:
        """Among calls of one id the one that the result's own record names, else the latest."""
        uuid = fields.get("sourceToolAssistantUUID") or fields.get("parentUuid")
        if call_id is not None:
            waiting = self._open.get(call_id, [])
            named = [call for call in waiting if uuid and call.uuid == uuid]
            found = next(iter(named or waiting[-1:]), None)
        else:
            waiting = sorted((c for calls in self._open.values() for c in calls), key=_start)
            found = next((c for c in waiting if c.minted and uuid and c.uuid == uuid), None)
        if found:
            self._open[found.call_id].remove(found)
        return found

    def _orphan(self, record: Record, block: dict[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        self._report.orphan_results += 1
        self._report.flag(record.line, "a tool result without a call")
        self._add(record, block, {"call_id": plain(call_id) or ""})

    def _add(
        self,
        record: Record,
        block: dict[str, Any],
        result: dict[str, Any],
        *,
        parent: int | None = None,
    ) -> None:
        structured = record.fields.get("toolUseResult")
        rest = {k: v for k, v in block.items() if k not in ("type", "tool_use_id", "content")}
        result |= {
            "outcome": "error" if block.get("is_error") is True else "ok",
            "output": block.get("content", ""),
            "source": {**source(record, "message", "toolUseResult"), "block": rest},
        }
        if (seconds := _duration(structured)) is not None:
            result["duration"] = seconds
        if structured is not None:
            result["structured"] = structured
        self._drafts.add(RESULT, result, record, parent=parent)


def _start(call: OpenCall) -> int:
    return call.index


def _duration(structured: object) -> float | None:
    if not isinstance(structured, dict):
        return None
    for name in ("durationMs", "totalDurationMs"):
        value = structured.get(name)
        if isinstance(value, int | float) and value >= 0:
            return value / 1000
    return None
