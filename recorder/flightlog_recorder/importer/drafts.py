"""The growing list of an import's events, and how each names the lines it came from."""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from flightlog.blobs.spill import SPILLS, spill
from flightlog.wire import carry
from flightlog_recorder.importer import oversize
from flightlog_recorder.importer.draft import Draft
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Line, Record

KEPT = "import_line"  # the type of an event that keeps a source's line as it is


class Drafts:
    """Events in the making, in file order; draft `i` will be seq `first_seq + i`."""

    def __init__(self, first_seq: int, report: Report) -> None:
        self._first_seq, self._report = first_seq, report
        self._drafts: list[Draft] = []

    def __len__(self) -> int:
        return len(self._drafts)

    def seq(self, index: int) -> int:
        """The seq that a draft will have."""
        return self._first_seq + index

    @property
    def next_seq(self) -> int:
        """The seq of the draft that is added next."""
        return self.seq(len(self._drafts))

    def add(
        self, type: str, payload: dict[str, Any], record: Record, *, parent: int | None = None
    ) -> int:
        """Append an event and return its index."""
        self._drafts.append(
            Draft(
                type=type,
                payload=carry.pack(payload),
                parent=parent,
                ts=timestamp(record.fields.get("timestamp")),
                line=record.line,
            )
        )
        return len(self._drafts) - 1

    def fill(self, index: int, payload: dict[str, Any]) -> None:
        """Give an event its payload once all of its lines are known."""
        draft = self._drafts[index]
        self._drafts[index] = msgspec.structs.replace(draft, payload=carry.pack(payload))

    def keep(self, record: Record, *, kind: str | None = None, why: str | None = None) -> None:
        """Keep a record as it is: the session shows it, the context does not hold it."""
        kept = {**place(record), "kind": kind or kind_of(record.fields), "record": record.fields}
        if why:
            kept["why"] = why
            self._report.flag(record.line, why)
        self.add(KEPT, kept, record)

    def keep_raw(self, line: Line, why: str) -> None:
        """Keep the bytes of a line that cannot be read."""
        try:
            raw: str | bytes = line.raw.decode()
        except UnicodeDecodeError:
            raw = line.raw
        kept = {"line": line.number, "at": line.offset, "kind": "unreadable", "raw": raw}
        self._report.flag(line.number, why)
        self.add(KEPT, {**kept, "why": why}, Record(-1, line.number, line.offset, {}))

    def close(self, *, limit: int) -> list[Draft]:
        """Hand over the drafts; texts that are too large for an event will become blobs.

        What stays above `limit` bytes even so is shortened, its pieces come last.
        """
        for index in range(len(self._drafts)):
            if len(_left(self._drafts[index])) > limit:
                self._split(index, limit)
        for draft in self._drafts:
            self._report.count("events", draft.type)
            self._report.measure(len(bytes(draft.payload)), draft.line)
        return self._drafts

    def _split(self, index: int, limit: int) -> None:
        draft = self._drafts[index]
        self._report.flag(draft.line, "too large for one message: shortened, whole in pieces")
        short = oversize.shorten(draft.payload, limit=limit)
        self._drafts[index] = msgspec.structs.replace(draft, payload=short)
        parts = oversize.pieces(draft.payload)
        for part, raw in enumerate(parts, 1):
            piece = {"line": draft.line, "kind": "piece", "of": self.seq(index), "raw": raw}
            payload = carry.pack({**piece, "part": part, "parts": len(parts)})
            self._drafts.append(Draft(type=KEPT, payload=payload, ts=draft.ts, line=draft.line))


def _left(draft: Draft) -> Raw:
    """What of the payload an event will hold."""
    return spill(draft.type, draft.payload, SPILLS)[0]


def place(record: Record) -> dict[str, Any]:
    """Where a record stands in its file: line from 1, byte offset."""
    return {"line": record.line, "at": record.offset}


def source(record: Record, *taken: str) -> dict[str, Any]:
    """A record's place and all of its fields but those the payload itself has taken."""
    rest = {name: value for name, value in record.fields.items() if name not in taken}
    message = record.fields.get("message")
    if "message" in taken and isinstance(message, dict):
        said = {k: v for k, v in message.items() if k != "content" and (k, v) != ("role", "user")}
        rest |= {"message": said} if said else {}
    return {**place(record), "record": rest}


def kind_of(fields: dict[str, Any]) -> str:
    """A record's type and subtype in one word."""
    attachment = fields.get("attachment")
    inner = attachment.get("type") if isinstance(attachment, dict) else fields.get("subtype")
    return f"{fields.get('type')}/{inner}" if isinstance(inner, str) else str(fields.get("type"))


def timestamp(value: object) -> str | None:
    """ISO 8601 with an offset as the wire writes it: UTC, microseconds, `Z`; None if it is not."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        if at.tzinfo is None:
            return None
        at = at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
