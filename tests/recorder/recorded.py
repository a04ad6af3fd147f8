"""Sessions for the commands to look at: recorded, written by hand, and projected."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from flightlog import Log
from flightlog import snapshot as snapshots
from flightlog.bus.answer import Acked
from flightlog.bus.protocol import Outgoing
from flightlog.cache import catalog
from flightlog.cache.floor import Floor, Floors
from flightlog.event import Event
from flightlog.reading import reader
from flightlog.reading.reader import Folded
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog.writing import keys
from tests.handmade import follow
from tests.scripted import TENANT, Model, asks, says


async def talk(log: Log, *, key: str | None = None, labels: dict[str, str] | None = None) -> str:
    """A short session that ends: one question, one tool call, one answer."""
    model = Model(asks(("t1", "add", {"x": 1})), says("it is 2"))
    async with log.session(key=key, labels=labels or {}, harness_version="test/1") as session:
        await session.user_message("what is 1 + 1?")
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        [call] = session.state.next.calls  # type: ignore[union-attr]
        await session.tool_call(call, run=lambda x: x + 1)
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        await session.end("completed")
        return session.id


async def write(
    log: Log, session: str, bodies: Sequence[Event | bytes], *, part: str = "live", last: int = 0
) -> int:
    """Store messages as they are, with no writer in between; the last one's stream sequence."""
    subject = names.log_subject(TENANT, session, part)
    for each in bodies:
        body = each.body if isinstance(each, Event) else each
        answer = await log.bus.append(subject, [Outgoing(body, {})], expected=last, timeout=5)
        assert isinstance(answer, Acked)
        last = answer.sequence
    return last


async def left_running(log: Log, key: str = "job/1") -> str:
    """A session whose process died without a word, as the catalog has it."""
    entry = await keys.claim(log.bus, TENANT, key)
    said = {"writer": {"number": 1, "id": "w" * 32}, "key": key}
    started = follow(None, type="session_started", payload=said, session=entry.id)
    await write(log, entry.id, [started])
    await project(log, entry.id)
    return entry.id


async def left_asking(log: Log, tool: str, arguments: dict[str, Any]) -> str:
    """A session whose call was left in flight, and waits for a person."""
    model = Model(asks(("t1", tool, arguments)))
    with pytest.raises(KeyboardInterrupt):
        async with log.session(key=tool) as session:
            await session.user_message("do it")
            request = {"model": "m", "messages": session.state.messages()}
            await session.model_call(request, call=model)
            [call] = session.state.next.calls  # type: ignore[union-attr]
            async with session.calling(call):
                raise KeyboardInterrupt
    async with log.session(key=tool) as session:
        return session.id


async def fold(log: Log, session: str) -> Folded[SessionState]:
    """The session's state and place."""
    return await reader.fold(log.bus, TENANT, session, SESSION)


async def project(log: Log, session: str, *, floor: int | None = None) -> Folded[SessionState]:
    """Store what a projector would: the snapshot, the row, and the floor if one is given."""
    assert log.store is not None
    folded = await fold(log, session)
    await save(log, session, snapshot(folded))
    await log.store.save_row(row(session, folded))
    if floor is not None:
        await raise_floor(log, session, floor)
    return folded


async def raise_floor(log: Log, session: str, sequence: int) -> None:
    """Let the catalog say that it is whole up to a stream sequence."""
    assert log.store is not None
    floors = Floors(log.store, log.bus.layout.stream_of(session), replica="a test")
    assert await floors.claim()
    assert await floors.create(Floor("a test", sequence))
    await floors.release()


async def save(log: Log, session: str, value: bytes) -> None:
    """Store a snapshot's bytes over whatever is there."""
    assert log.store is not None
    held = await log.store.snapshot(TENANT, session, SESSION.name, SESSION.version)
    replacing = None if held is None else snapshots.header(held)
    assert await log.store.save_snapshot(
        TENANT, session, SESSION.name, SESSION.version, value, replacing=replacing
    )


def snapshot(folded: Folded[SessionState], *, state: SessionState | None = None) -> bytes:
    """A snapshot's bytes; `state` for one that tells another story."""
    told = folded if state is None else replace(folded, state=state)
    return snapshots.write(reader.snapshot_of(SESSION, told))


def row(session: str, folded: Folded[SessionState]) -> catalog.Row:
    """The catalog's row."""
    return catalog.row_of(
        folded.state,
        tenant=TENANT,
        session=session,
        sequence=folded.sequence,
        read_to=folded.read_to,
        strays=len(folded.strays),
    )
