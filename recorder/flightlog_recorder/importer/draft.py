"""An imported transcript before it has a session: its events without session id and chain."""

from typing import NamedTuple

import msgspec

from flightlog_recorder.importer.report import Report


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be. The one at `index` of a list becomes seq `first_seq + index`.

    `parent` is the index of the draft it answers, None when that is simply the one before it.
    `ts` is None where the source has no valid time; `line` is the source's line, from 1.
    """

    type: str
    payload: msgspec.Raw
    parent: int | None = None
    ts: str | None = None
    line: int = 0


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A transcript as events, in file order, with the identity of its source.

    `hash` is the hex SHA-256 of the file's first `size` bytes. Reading the same bytes again gives
    the same drafts, byte for byte. Payloads hold seqs that count from `first_seq`.
    """

    format: str
    source_id: str
    path: str
    hash: str
    size: int
    first_seq: int
    harness_version: str
    labels: dict[str, str]
    drafts: list[Draft]
    report: Report


class Keys(NamedTuple):
    """`content` is taken by one import of exactly these bytes; `source` names what may grow."""

    content: str
    source: str


def keys(imported: Imported) -> Keys:
    """Name the import: the same file twice is one session, a grown one finds its elder."""
    source = f"import:{imported.format}:{imported.source_id}"
    return Keys(content=f"{source}:{imported.hash}", source=source)
