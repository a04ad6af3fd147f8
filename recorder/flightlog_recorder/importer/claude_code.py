"""Claude Code transcripts: from the lines of a session's .jsonl to drafts of events.

File order is the order. What the conversation left behind (sub-agents, rewound branches) becomes
side calls and `import_line` events, so that the context is the conversation as it stands.
"""

from pathlib import Path
from typing import Any, Literal

from flightlog.wire import carry
from flightlog_recorder.importer.answers import Answer, Answers
from flightlog_recorder.importer.calls import Calls, Finished, Started
from flightlog_recorder.importer.draft import Draft, Imported
from flightlog_recorder.importer.drafts import Drafts, place, source
from flightlog_recorder.importer.errors import BadTranscript
from flightlog_recorder.importer.oversize import LIMIT
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Record, identify, plain
from flightlog_recorder.importer.survey import LINKED, Lane, Survey, is_summary, survey
from flightlog_recorder.importer.walk import Unfit, ViewOnly, records, walk

FORMAT = "claude-code"
RESULT = "tool_result"
VIEW_ONLY = frozenset(
    {
        "agent-name",
        "ai-title",
        "atis-latch",
        "bridge-session",
        "custom-title",
        "file-history-snapshot",
        "frame-link",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "relocated",
        "result",
        "started",
        "summary",
        "tag",
        "worktree-state",
    }
)


def read_claude_code(path: Path, *, first_seq: int = 2, limit: int = LIMIT) -> Imported:
    """Read a transcript into drafts of events, the first of which will be seq `first_seq`.

    The same bytes always give the same drafts. A bad line is kept raw and flagged; only a file
    that is no transcript at all raises `BadTranscript`. A payload of more than `limit` bytes is
    shortened in its place and follows in pieces at the end. Memory: the drafts, and one line.
    """
    file = identify(path)
    found = survey(path, records(path, file))
    if not any(name in VIEW_ONLY or name in LINKED for name in found.types):
        raise BadTranscript(path, _not_a_transcript(found))
    mapping = _Mapping(found, first_seq)
    walk(path, file, mapping.drafts, mapping.report, mapping.take)
    return Imported(
        format=FORMAT,
        source_id=found.source_id,
        path=str(path),
        hash=file.hash,
        size=file.size,
        first_seq=first_seq,
        harness_version=f"claude-code/{found.version or 'unknown'}",
        labels=found.labels,
        drafts=mapping.finish(limit),
        report=mapping.report,
    )


def _not_a_transcript(found: Survey) -> str:
    if not found.types:
        return "no line of it is a JSON object"
    return "none of its lines is of a type that Claude Code writes"


class _Mapping:
    """The second reading: where we are in the transcript, and what it has become so far."""

    def __init__(self, found: Survey, first_seq: int) -> None:
        self.report = Report(types=found.types)
        self._found = found
        self.drafts = Drafts(first_seq, self.report)
        self._answers = Answers(self.drafts, self.report)
        self._calls = Calls(self.drafts, self.report, expected=found.calls)

    def take(self, record: Record) -> None:
        lane = self._found.lane(record.index)
        self.report.side += lane == "side"
        self.report.rewound += lane == "rewound"
        self.report.repeated += lane == "repeat"
        if record.index in self._found.changed:
            self.report.flag(record.line, "its uuid stands in the file with other content")
        kind = record.fields.get("type")
        if isinstance(kind, str) and kind in VIEW_ONLY and not is_summary(record.fields):
            raise ViewOnly(kind)
        self._map(record, lane)

    def finish(self, limit: int) -> list[Draft]:
        self._calls.close()
        self._answers.close()
        return self.drafts.close(limit=limit)

    def _map(self, record: Record, lane: Lane) -> None:
        match record.fields:
            case _ if lane == "repeat":
                self.drafts.keep(record, kind=lane)
            case {"type": "assistant"}:
                self._assistant(record, lane)
            case _ if is_summary(record.fields):
                self._summary(record, lane)
            case {"type": "user"}:
                self._user(record, lane)
            case {"type": "system", "subtype": "compact_boundary"}:
                self._boundary(record, lane)
            case {"type": "attachment", "attachment": {"type": "queued_command"}}:
                self._queued(record, lane)
            case {"type": str(kind)}:
                if kind not in LINKED:
                    self.report.count("unknown", kind)
                self.drafts.keep(record)
            case _:
                raise Unfit("it has no type")

    def _assistant(self, record: Record, lane: Lane) -> None:
        content = _content(record)
        ids = _call_ids(content)
        if not all(plain(call_id) for call_id in ids):
            raise Unfit("a tool call has an id that is no text")
        if len(set(ids)) != len(ids):
            raise Unfit("two of its tool calls have one id")
        answer = self._answers.of(record, purpose="main" if lane == "main" else "side")
        blocks = _named(record, content) if isinstance(content, list) else []
        packed = content if isinstance(content, str) else [carry.pack(block) for block in blocks]
        if answer.repeats(packed):
            self.report.repeated += 1
            self.drafts.keep(record, kind="repeat")
            return
        if self._calls.of(answer.index).intersection(ids):
            raise Unfit("an earlier tool call of its message has the same id")
        new = answer.take(record, packed)
        for i, block in enumerate(blocks):
            if i in new and _is_call(block):
                minted = block is not content[i]
                self._calls.start(record, _started(record, block, answer, minted=minted))

    def _user(self, record: Record, lane: Lane) -> None:
        content = _content(record)
        if isinstance(content, str):
            self._said(record, lane, content)
            return
        results = [block for block in content if block.get("type") == RESULT]
        for block in results:
            self._calls.finish(record, _finished(record, block))
        rest = [block for block in content if block.get("type") != RESULT]
        if rest or not results:
            self._said(record, lane, rest)

    def _said(self, record: Record, lane: Lane, content: object) -> None:
        if lane != "main" or record.fields.get("isVisibleInTranscriptOnly") is True:
            self.drafts.keep(record, kind="user/hidden" if lane == "main" else lane)
            return
        said = {"content": content, "origin": _origin(record.fields)}
        self.drafts.add("user_message", {**said, "source": source(record, "message")}, record)

    def _queued(self, record: Record, lane: Lane) -> None:
        """What a person typed while the agent worked reaches the model as an attachment."""
        attachment = record.fields["attachment"]
        prompt = attachment.get("prompt")
        if lane != "main" or not isinstance(prompt, str | list):
            self.drafts.keep(record)
            return
        typed = attachment.get("commandMode") == "prompt"
        origin = _origin(attachment) if typed else "system"
        rest = source(record, "attachment")
        rest["record"]["attachment"] = {k: v for k, v in attachment.items() if k != "prompt"}
        said = {"content": prompt, "origin": origin, "source": rest}
        self.drafts.add("user_message", said, record)

    def _summary(self, record: Record, lane: Lane) -> None:
        content = _content(record)
        if lane == "main":
            self._compact(record, content, source(record, "message"))
        else:
            self.drafts.keep(record, kind=lane)

    def _boundary(self, record: Record, lane: Lane) -> None:
        if lane != "main" or str(record.fields.get("uuid")) in self._found.summarised:
            self.drafts.keep(record)
            return
        content = record.fields.get("content")
        summary = content if isinstance(content, str) and content else "Conversation compacted"
        self._compact(record, summary, source(record))

    def _compact(self, record: Record, summary: object, rest: dict[str, Any]) -> None:
        keep_from = self.drafts.next_seq
        compact = {"summary": summary, "keep_from": keep_from, "source": rest}
        self.drafts.add("compact", compact, record)


def _content(record: Record) -> list[dict[str, Any]] | str:
    message = record.fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        return content
    raise Unfit("its message cannot be read")


def _is_call(block: dict[str, Any]) -> bool:
    return block.get("type") == "tool_use"


def _call_ids(content: list[dict[str, Any]] | str) -> list[Any]:
    blocks = content if isinstance(content, list) else []
    return [block["id"] for block in blocks if _is_call(block) and block.get("id")]


def _named(record: Record, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls without an id one that the provider would take."""
    return [
        {**block, "id": f"import_{record.line}_{place}"}
        if _is_call(block) and not block.get("id")
        else block
        for place, block in enumerate(content)
    ]


def _origin(fields: dict[str, Any]) -> Literal["human", "schedule", "peer", "system"]:
    origin = fields.get("origin")
    kind = origin.get("kind") if isinstance(origin, dict) else None
    if fields.get("isMeta") is True:
        return "system"
    return "human" if kind in (None, "human") else "system"


def _started(record: Record, block: dict[str, Any], answer: Answer, *, minted: bool) -> Started:
    return Started(
        call_id=block["id"],
        name=plain(block.get("name")),
        arguments=block.get("input"),
        source=place(record),
        answer=answer.index,
        record=record.fields.get("uuid"),
        minted=minted,
    )


def _finished(record: Record, block: dict[str, Any]) -> Finished:
    """The result in a block, for the call that its own record names."""
    fields = record.fields
    structured = fields.get("toolUseResult")
    rest = {k: v for k, v in block.items() if k not in ("type", "tool_use_id", "content")}
    said: dict[str, Any] = {
        "outcome": "error" if block.get("is_error") is True else "ok",
        "output": block.get("content", ""),
        "source": {**source(record, "message", "toolUseResult"), "block": rest},
    }
    if (seconds := _duration(structured)) is not None:
        said["duration"] = seconds
    if structured is not None:
        said["structured"] = structured
    return Finished(
        call_id=str(block["tool_use_id"]) if block.get("tool_use_id") else None,
        said=said,
        record=fields.get("sourceToolAssistantUUID") or fields.get("parentUuid"),
    )


def _duration(structured: object) -> float | None:
    if not isinstance(structured, dict):
        return None
    for name in ("durationMs", "totalDurationMs"):
        value = structured.get(name)
        if isinstance(value, int | float) and value >= 0:
            return value / 1000
    return None
