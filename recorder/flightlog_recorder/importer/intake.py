"""Puts an imported transcript into the log: once per content, as the `base` of a new session."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import FlightlogError, KeyTaken
from flightlog.event import Event
from flightlog.reading import reader
from flightlog.wire import payload as payloads
from flightlog.writing import keys as names
from flightlog.writing import seal
from flightlog.writing.draft import Draft
from flightlog.writing.keys import Entry
from flightlog_recorder.importer.draft import Imported, keys
from flightlog_recorder.importer.source import grew_from

_LOOK_AGAIN = 0.1  # seconds
_TRIES = 5

_encode = msgspec.json.Encoder().encode


class NotOurs(FlightlogError):
    """Others keep taking this import's key. Retrying helps once they are done."""

    def __init__(self) -> None:
        super().__init__("other imports of this file keep getting in the way; run it again")


class Taken(Struct, frozen=True):
    """Where an import went; `earlier` is the session of the file before it grew."""

    session: str
    made: Literal["new", "was there"]
    events: int
    earlier: str | None = None


class _Source(Struct, frozen=True):
    """What an imported session says of the file it came from."""

    hash: str
    size: int = 0


async def take(
    bus: NatsBus,
    tenant: str,
    imported: Imported,
    *,
    key: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Taken:
    """Make a sealed session of an import; the same bytes again add nothing.

    `key` is the readable name under which the session can be opened. A run that died half-way is
    given up and done again. Raises `KeyTaken`, `NotOurs`, `BusUnavailable` (run it again),
    `TooLarge` and `LogFull`.
    """
    content = keys(imported).content
    for _ in range(_TRIES):
        entry = await names.claim(bus, tenant, content, made_by="import")
        standing = (await seal.settled(bus, tenant, entry.id)).standing
        if standing in ("sealed", "absent") and key is not None:
            await _take_key(bus, tenant, key, entry.id)
        if standing == "sealed":
            return await _was_there(bus, tenant, imported, entry)
        if standing == "absent":
            return await _write(bus, tenant, imported, entry, key=key, labels=labels or {})
        await seal.abandon(
            bus, tenant, entry.id, entries=[entry], by="import", why="its author is gone"
        )
    raise NotOurs


async def _take_key(bus: NatsBus, tenant: str, key: str, session: str) -> None:
    """Let the readable key stand for the session; one of an abandoned import is free."""
    owner = await names.claim(bus, tenant, key, made_by="import", id=session)
    if owner.id == session:
        return
    if (await seal.look(bus, tenant, owner.id)).standing != "abandoned":
        raise KeyTaken(owner.id)
    await names.release(bus, owner)
    owner = await names.claim(bus, tenant, key, made_by="import", id=session)
    if owner.id != session:
        raise KeyTaken(owner.id)


async def _was_there(bus: NatsBus, tenant: str, imported: Imported, entry: Entry) -> Taken:
    said = await _imported_event(bus, tenant, entry.id)
    earlier = _earlier_of(said)
    source = keys(imported).source
    pointer = await names.look_up(bus, tenant, source)
    if pointer is None or pointer.id == earlier:
        await _point(bus, tenant, source, pointer, entry.id)
    return Taken(entry.id, "was there", said.seq if said else 0, earlier)


async def _write(
    bus: NatsBus,
    tenant: str,
    imported: Imported,
    entry: Entry,
    *,
    key: str | None,
    labels: Mapping[str, str],
) -> Taken:
    found = keys(imported)
    pointer = await names.look_up(bus, tenant, found.source)
    earlier = await _grown_from(bus, tenant, imported, pointer)
    drafts = _drafts(imported, key or found.source, {**imported.labels, **labels}, earlier)
    head = await seal.write_base(
        bus, tenant, entry.id, drafts, harness_version=imported.harness_version
    )
    await _point(bus, tenant, found.source, pointer, entry.id)
    return Taken(entry.id, "new", head.seq, earlier)


async def _grown_from(
    bus: NatsBus, tenant: str, imported: Imported, pointer: Entry | None
) -> str | None:
    """The session of the last import of this source, if the file begins with what that one read."""
    if pointer is None:
        return None
    said = await _imported_event(bus, tenant, pointer.id)
    source = _source_of(said) if said else None
    if source is None or not 0 < source.size < imported.size:
        return None
    grew = await asyncio.to_thread(
        grew_from, Path(imported.path), size=source.size, hash=source.hash
    )
    return pointer.id if grew else None


async def _point(
    bus: NatsBus, tenant: str, source: str, pointer: Entry | None, session: str
) -> None:
    """Let the source's key stand for its latest session; whoever comes second leaves it."""
    if pointer is not None and pointer.id != session:
        await names.release(bus, pointer)
    await names.claim(bus, tenant, source, made_by="import", id=session)


async def _imported_event(bus: NatsBus, tenant: str, session: str) -> Event | None:
    async for event in reader.read(bus, tenant, session):
        if event.type == "session_imported":
            return event
    return None


def _earlier_of(event: Event | None) -> str | None:
    said = payloads.decode(event.type, event.raw) if event else None
    return said.earlier if isinstance(said, payloads.SessionImported) else None


def _source_of(event: Event) -> _Source | None:
    try:
        return msgspec.json.decode(event.raw, type=_Source)
    except msgspec.MsgspecError:
        return None


def _drafts(
    imported: Imported, key: str, labels: Mapping[str, str], earlier: str | None
) -> Iterator[Draft]:
    """The base: its start, the transcript, and where that came from, which happens now."""
    known = next((draft.ts for draft in imported.drafts if draft.ts), None)
    yield Draft("session_started", _started(key, labels), ts=known)
    for draft in imported.drafts:
        known = draft.ts or known
        parent = None if draft.parent is None else imported.first_seq + draft.parent
        yield Draft(draft.type, draft.payload, parent_seq=parent, ts=known)
    yield Draft("session_imported", _imported(imported, key, labels, earlier))


def _started(key: str, labels: Mapping[str, str]) -> Raw:
    writer = payloads.Writer(number=1, id=secrets.token_hex(16))
    return payloads.encode(payloads.SessionStarted(writer=writer, key=key, labels=dict(labels)))


def _imported(imported: Imported, key: str, labels: Mapping[str, str], earlier: str | None) -> Raw:
    said = payloads.SessionImported(
        format=imported.format,
        id=imported.source_id,
        path=imported.path,
        hash=imported.hash,
        earlier=earlier,
        key=key,
        labels=dict(labels),
    )
    fields = msgspec.to_builtins(said)
    return Raw(_encode({**fields, "size": imported.size, "report": _account(imported)}))


def _account(imported: Imported) -> dict[str, object]:
    """What became of the source's lines, for whoever asks the session itself."""
    report = imported.report
    return {
        "lines": report.lines,
        "view_only": report.view_only,
        "kept": report.kept,
        "flagged": len(report.flagged),
    }
