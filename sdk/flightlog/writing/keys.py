"""Keys: the readable name of a session, and the one id that it stands for.

Written with our own appends and their exact expectation, not through a KV client (DESIGN section
3): gets may be stale, so that a key is absent is decided by the create alone.
"""

import asyncio
from typing import Literal

import msgspec
from msgspec import Struct

from flightlog.bus.answer import Acked, Conflict
from flightlog.bus.protocol import Bus, Message, Outgoing
from flightlog.errors import BusUnavailable
from flightlog.wire import subject as names
from flightlog.wire.layout import KEYS_STREAM

MadeBy = Literal["session", "fork", "import"]

_TIMEOUT = 5.0  # seconds for one answer
_TRIES = 20
_PAUSE = 0.05  # seconds between tries


class Entry(Struct, frozen=True):
    """What a key stands for: a session id, what made it, and where that is stored."""

    id: str
    made_by: MadeBy = "session"
    sequence: int = 0
    subject: str = ""


class _Stored(Struct, frozen=True):
    id: str
    made_by: MadeBy = "session"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Stored).decode


async def look_up(bus: Bus, tenant: str, key: str) -> Entry | None:
    """The key's entry as a replica knows it; None may be stale."""
    found = await _last(bus, names.key_subject(tenant, key))
    return _read(found) if found else None


async def held(bus: Bus, tenant: str, key: str) -> Entry | None:
    """The key's entry as the leader knows it; None is no lag."""
    found = await bus.last(KEYS_STREAM, names.key_subject(tenant, key))
    return _read(found) if found else None


async def claim(
    bus: Bus, tenant: str, key: str, *, made_by: MadeBy = "session", id: str | None = None
) -> Entry:
    """The key's entry, made with a newly minted id (or `id`) if it had none. Idempotent.

    Raises `BusUnavailable`; calling again is safe.
    """
    subject = names.key_subject(tenant, key)
    mine, tried = id or bus.layout.mint(), 0
    found = await _last(bus, subject)
    for _ in range(_TRIES):
        if found is not None and (entry := _read(found)) is not None:
            return entry
        expected = found.sequence if found else 0
        if id is None and expected != tried:  # an earlier try may be stored, and purged since
            mine, tried = bus.layout.mint(), expected
        body = _encode(_Stored(mine, made_by))
        answer = await bus.append(
            subject, [Outgoing(body, {})], expected=expected, timeout=_TIMEOUT
        )
        match answer:
            case Acked(sequence=sequence):
                return Entry(mine, made_by, sequence, subject)
            case Conflict(last=last) if last:
                found = await _revision(bus, subject, last)
            case _:
                await asyncio.sleep(_PAUSE)
                found = await _last(bus, subject)
    raise BusUnavailable(KEYS_STREAM, "the key could not be claimed or read")


async def _revision(bus: Bus, subject: str, sequence: int) -> Message | None:
    """The entry that the broker named; a replica may show it a little later."""
    for _ in range(_TRIES):
        if (found := await bus.after(KEYS_STREAM, subject, sequence - 1)) is not None:
            return found
        await asyncio.sleep(_PAUSE)
    return None


async def held_by(bus: Bus, tenant: str, id: str) -> list[Entry]:
    """The entries that name a session, for who knows no key; reads all of the tenant's."""
    subject, start, more = f"$KV.{names.KEYS_BUCKET}.{tenant}.*", 1, True
    found = dict[str, Entry | None]()
    while more:
        page = await bus.page(KEYS_STREAM, subject, start)
        found |= {message.subject: _read(message) for message in page.messages}
        start, more = (page.messages[-1].sequence + 1 if page.messages else start), page.more
    return [entry for entry in found.values() if entry is not None and entry.id == id]


async def release(bus: Bus, entry: Entry) -> bool:
    """Remove the entry if it is still this one; the key then mints anew. False if it is another."""
    marker = Outgoing(b"", {"KV-Operation": "DEL"})
    answer = await bus.append(entry.subject, [marker], expected=entry.sequence, timeout=_TIMEOUT)
    return isinstance(answer, Acked)


async def _last(bus: Bus, subject: str) -> Message | None:
    return await bus.after(KEYS_STREAM, subject, 0)


def _read(message: Message) -> Entry | None:
    if not message.body:
        return None  # a delete marker: the key is free again
    try:
        entry = _decode(message.body)
    except msgspec.MsgspecError:
        return None
    return Entry(entry.id, entry.made_by, message.sequence, message.subject)
