"""Codex rollouts: from the lines of a session's .jsonl to drafts of events.

File order is the order, and the context at each event is what the model would have seen there: a
compaction replaces it, a rollback takes turns out of it. The log itself keeps everything.
"""

from pathlib import Path
from typing import Any

import msgspec

from flightlog_recorder.importer import codex_items as items
from flightlog_recorder.importer.calls import Calls, Started
from flightlog_recorder.importer.codex_answers import PROVIDER, Answers
from flightlog_recorder.importer.codex_items import Item, item_of
from flightlog_recorder.importer.codex_outputs import finished
from flightlog_recorder.importer.codex_survey import Survey, digest, survey
from flightlog_recorder.importer.codex_tokens import Tokens
from flightlog_recorder.importer.draft import Draft, Imported
from flightlog_recorder.importer.drafts import Drafts, place
from flightlog_recorder.importer.errors import BadTranscript
from flightlog_recorder.importer.oversize import LIMIT
from flightlog_recorder.importer.packed import unpacked
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Record, identify, plain
from flightlog_recorder.importer.walk import Unfit, ViewOnly, records, walk

FORMAT = "codex"
SUMMARY = "Conversation compacted"  # where a compaction says nothing itself
# Events that say again what response items say; only those whose words are there are left out.
ECHOES = frozenset(
    {
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "item_completed",
        "user_message",
    }
)
COUNTS = frozenset({"token_count", "turn.completed"})
BOUNDS = frozenset({"task_started", "task_complete", "turn_aborted", "turn_started"})


class _Turn(msgspec.Struct, frozen=True):
    """Where a turn of the user's begins: at an event, or at a message that a compaction left."""

    seq: int
    message: int | None = None


def read_codex(path: Path, *, first_seq: int = 2, limit: int = LIMIT) -> Imported:
    """Read a rollout into drafts of events, the first of which will be seq `first_seq`.

    The same bytes always give the same drafts. A bad line is kept raw and flagged; only a file
    that is no rollout at all raises `BadTranscript`. A payload of more than `limit` bytes is
    shortened in its place and follows in pieces at the end. An archive (`.zst`) is read as what is
    in it, unless the plain file stands beside it. Memory: the drafts, and one line.
    """
    path = unpacked(path)
    file = identify(path)
    found = survey(path, records(path, file))
    if not found.known:
        raise BadTranscript(path, _not_a_rollout(found))
    mapping = _Mapping(found, first_seq)
    walk(path, file, mapping.drafts, mapping.report, mapping.take)
    return Imported(
        format=FORMAT,
        source_id=found.source_id,
        path=str(path),
        hash=file.hash,
        size=file.size,
        first_seq=first_seq,
        harness_version=f"codex/{found.version or 'unknown'}",
        labels=found.labels,
        drafts=mapping.finish(limit),
        report=mapping.report,
    )


def _not_a_rollout(found: Survey) -> str:
    if not found.types:
        return "no line of it is a JSON object"
    return "none of its lines is of a type that Codex writes"


class _Mapping:
    """The second reading: where we are in the rollout, and what it has become so far."""

    def __init__(self, found: Survey, first_seq: int) -> None:
        self.report = Report(types=found.types)
        self.drafts = Drafts(first_seq, self.report)
        self._found = found
        self._answers = Answers(self.drafts, self.report)
        self._calls = Calls(self.drafts, self.report, expected=found.calls)
        self._tokens = Tokens()
        self._turns: list[_Turn] = []
        self._injected: int | None = None
        self._left: list[items.Message] = []

    def take(self, record: Record) -> None:
        item, index = item_of(record), record.index
        if index in self._found.changed:
            self.report.flag(record.line, "its id stands in the file with other content")
        match item.envelope:
            case "response_item" if index in self._found.repeats:
                self.report.repeated += 1
                self.drafts.keep(record, kind="repeat")
            case "response_item":
                self._respond(item)
            case "event_msg":
                self._happen(item)
            case "compacted":
                self._compact(item)
            case "turn_context":
                self._answers.over()
                self._answers.model = plain(item.body.get("model")) or self._answers.model
                self._keep(item)
            case "":
                raise Unfit(
                    "its payload cannot be read" if "type" in record.fields else "it has no type"
                )
            case _:
                self._keep(item)

    def finish(self, limit: int) -> list[Draft]:
        self._calls.close()
        self._answers.close()
        return self.drafts.close(limit=limit)

    def _keep(self, item: Item) -> None:
        named = item.envelope != "response_item" or item.kind in items.ITEMS
        if not named or not items.is_known(item):
            self.report.count("unknown", item.name)
        self.drafts.keep(item.record, kind=item.name)

    def _respond(self, item: Item) -> None:
        match item.kind:
            case "message" if items.role(item.body) == "assistant":
                items.content(item.body)
                self._answers.current(item).take(item)
                self._injected = None
            case "message" | "agent_message":
                self._hear(item)
            case kind if kind in items.OWN or items.is_server_side(item):
                self._answers.current(item).take(item)
                self._injected = None
            case kind if kind in items.CALLS:
                self._call(item)
            case kind if kind in items.RESULTS:
                result = finished(item)
                self._answers.over()
                self._injected = None
                self._calls.finish(item.record, result)
            case _:
                self._keep(item)

    def _hear(self, item: Item) -> None:
        origin = "peer" if item.kind == "agent_message" else items.origin(item.body)
        content = items.content(item.body)
        self._answers.over()
        seq = self.drafts.next_seq
        if not items.is_turn(item):
            self._injected = self._injected or seq
        else:
            begins = self._injected if self._injected and self._turns else seq
            self._turns.append(_Turn(begins))
            self._injected = None
        taken = ("content",) if items.is_kept(item.body["content"]) else ()
        said = {"content": content, "origin": origin, "source": items.source(item, *taken)}
        self.drafts.add("user_message", said, item.record)

    def _call(self, item: Item) -> None:
        call = items.call_of(item)
        answer = self._answers.current(item)
        self._injected = None
        if call.call_id in self._calls.of(answer.index):
            raise Unfit("an earlier tool call of its message has the same id")
        answer.take(item, call)
        started = Started(
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            source=place(item.record),
            answer=answer.index,
        )
        self._calls.start(item.record, started)

    def _happen(self, item: Item) -> None:
        match item.kind, item.body:
            case kind, _ if kind in ECHOES and self._is_echo(item):
                raise ViewOnly(item.name)
            case kind, _ if kind in COUNTS:
                self._count(item)
            case "thread_rolled_back", {"num_turns": int(count)} if count > 0:
                self._roll_back(item, count)
            case "thread_rolled_back", _:
                raise Unfit("its number of turns cannot be read")
            case "error", {"message": str(message)}:
                self._answers.fail(item, plain(message) or "an error whose text cannot be read")
            case kind, _:
                if kind in BOUNDS:
                    self._answers.over()
                self._keep(item)

    def _is_echo(self, item: Item) -> bool:
        """Whether response items hold all the words of an event."""
        inner = item.body.get("item")
        of = inner if isinstance(inner, dict) and item.kind == "item_completed" else item.body
        names = ("message", "text", "content", "summary_text", "raw_content")
        said = [text for name in names for text in items.texts(of.get(name))]
        return bool(said) and all(digest(text) in self._found.said for text in said)

    def _count(self, item: Item) -> None:
        info = item.body.get("info" if item.kind == "token_count" else "usage")
        if usage := self._tokens.take(info):
            self._answers.count(item, usage)
        elif item.kind == "token_count":
            raise ViewOnly(item.name)
        else:
            self._keep(item)

    def _compact(self, item: Item) -> None:
        replaced = item.body.get("replacement_history")
        if replaced is not None and not _are_objects(replaced):
            raise Unfit("its replacement history cannot be read")
        kept = [
            item_of(Record(-1, item.record.line, item.record.offset, b)) for b in replaced or []
        ]
        left = items.history(kept)
        message = plain(item.body.get("message"))
        self._answers.over()
        seq = self.drafts.next_seq
        self._turns = [_Turn(seq, at) for at, (_, is_turn) in enumerate(left) if is_turn]
        self._injected = None
        compact = {"summary": message or SUMMARY, "source": items.source(item)}
        self._replace(item, [said for said, _ in left], compact)

    def _replace(self, item: Item, said: list[items.Message], compact: dict[str, Any]) -> None:
        self._left = said
        rest = {"rest": said, "provider": PROVIDER} if said else {}
        keep_from = {"keep_from": self.drafts.next_seq}
        self.drafts.add("compact", {**compact, **keep_from, **rest}, item.record)

    def _roll_back(self, item: Item, count: int) -> None:
        self._answers.over()
        if count > len(self._turns):
            self.report.flag(item.record.line, "it takes back more turns than there are")
        if not self._turns:
            self._keep(item)
            return
        first = self._turns[-min(count, len(self._turns))]
        del self._turns[-min(count, len(self._turns)) :]
        self._injected = None
        rewind = {"to": first.seq, "turns": count, "source": items.source(item)}
        self.drafts.add("rewind", rewind, item.record)
        if first.message:
            seq, left = self.drafts.next_seq, self._left[: first.message]
            self._turns = [_Turn(seq, turn.message) for turn in self._turns]
            self._replace(item, left, {"summary": SUMMARY, "source": place(item.record)})


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)
