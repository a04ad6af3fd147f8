"""Where a session comes from: a fork, an import, a call of another session."""

import msgspec
from msgspec import Raw, Struct

from flightlog.wire.payload import SessionForked, SessionImported


class Forked(Struct, frozen=True):
    """The branch point of a fork."""

    session: str
    seq: int


class Imported(Struct, frozen=True):
    """The source of an import."""

    format: str
    id: str | None = None
    path: str | None = None
    hash: str | None = None


class Parent(Struct, frozen=True, omit_defaults=True):
    """The call of another session that opened this one; `name` is for people."""

    session: str
    call_id: str | None = None
    announced_by: int | None = None
    name: str | None = None


class Lineage(Struct, frozen=True):
    """Where a session comes from."""

    forked_from: Forked | None = None
    imported: Imported | None = None
    parent: Parent | None = None


_parent: msgspec.json.Decoder[Parent | None] = msgspec.json.Decoder(Parent | None)


def parent(raw: Raw) -> Parent | None:
    """The parent that a session_started names; None if it names none that can be read."""
    try:
        return _parent.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def forked(event: SessionForked) -> Forked:
    """The branch point that a session_forked names."""
    return Forked(event.session, event.seq)


def imported(event: SessionImported) -> Imported:
    """The source that a session_imported names."""
    return Imported(event.format, event.id, event.path, event.hash)
