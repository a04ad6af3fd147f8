"""A session as a tape: any event and state, from a live log and from a file alike."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import Raw

from flightlog import Log, NoSuchSession, connect
from flightlog.event import Event
from flightlog.reading.chain import Head
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projector
from flightlog_recorder.bench.script import store
from flightlog_recorder.embedded import Servers
from flightlog_recorder.replay import effects, exported, tape
from flightlog_recorder.replay.exported import FileSource, NoSession
from flightlog_recorder.replay.source import LiveSource, Opened, Place, Source, Stretch
from flightlog_recorder.replay.tape import NotThere
from tests.handmade import chain, follow, seal
from tests.recorder.recorded import project, talk, write
from tests.scripted import TENANT, stored


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


def written(path: Path, events: list[Event]) -> Path:
    path.write_bytes(b"".join(event.body + b"\n" for event in events))
    return path


def folded(events: list[Event]) -> list[SessionState]:
    states = [SESSION.initial()]
    for event in events:
        states.append(SESSION.apply(states[-1], event))
    return states


class Counted:
    """A source that counts what is read from it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.read = 0

    async def open(self, *, at: int | None = None) -> Opened:
        return await self._source.open(at=at)

    async def near(self, seq: int) -> Place | None:
        return await self._source.near(seq)

    async def filled(self, state: SessionState) -> SessionState:
        return await self._source.filled(state)

    async def payload(self, event: Event) -> Raw:
        return await self._source.payload(event)

    async def stretches(self, head: Head) -> AsyncGenerator[Stretch]:
        async with aclosing(self._source.stretches(head)) as stretches:
            async for stretch in stretches:
                self.read += len(stretch.events)
                yield stretch


async def test_a_log_and_its_export_give_the_same_events_and_states(
    log: Log, tmp_path: Path
) -> None:
    session = await talk(log)
    events = await stored(log, session)
    states = folded(events)
    path = written(tmp_path / "s.jsonl", events)
    for source in (LiveSource(log, session), FileSource(path)):
        found = await tape.opened(source)
        assert (found.session, found.last) == (session, len(events))
        for seq in [5, 2, 9, 1, len(events), 3]:
            assert (await found.event(seq)).body == events[seq - 1].body
            assert SESSION.encode((await found.state(seq)).state) == SESSION.encode(states[seq])
        assert (await found.state(0)).state == SESSION.initial()
        assert [e.seq async for e in found.events(after=2, until=6)] == [3, 4, 5, 6]


async def test_the_stored_snapshot_is_used_for_what_comes_after_it(log: Log) -> None:
    session = names.mint()
    events = chain(60, session=session)
    last = await write(log, session, events[:40])
    await project(log, session)
    await write(log, session, events[40:], last=last)
    found = await tape.opened(LiveSource(log, session), at=47)
    looked = await found.state(47)
    assert (looked.stored, looked.applied) == (40, range(41, 48))
    looked = await (await tape.opened(LiveSource(log, session), at=7)).state(7)
    assert (looked.stored, looked.applied) == (0, range(1, 8))


async def test_going_back_reads_a_page_and_not_the_log(tmp_path: Path) -> None:
    events = chain(20_000)
    source = Counted(FileSource(written(tmp_path / "s.jsonl", events)))
    found = await tape.opened(source)
    await found.state(20_000)
    assert source.read == 20_000
    for seq in (19_999, 19_500, 1, 10_000, 9_999, 9_500):
        assert (await found.state(seq)).state.seq == seq
    assert source.read <= 20_000 + 4 * 2_000


async def test_a_jump_reads_from_the_snapshot_that_is_kept_before_it(log: Log) -> None:
    assert log.store is not None
    session = names.mint()
    events = chain(4_400, session=session)
    await store(log.bus, TENANT, session, events, 0)
    (seen,) = await log.store.look(TENANT, [session])
    await Projector(log.bus, log.store, metrics=Metrics()).project(Job(TENANT, session, 0, seen))
    states = folded(events)
    source = Counted(LiveSource(log, session))
    found = await tape.opened(source)
    for seq in (2_345, 999, 3_700, 1_000, 2_346, 12):
        source.read = 0
        looked = await found.state(seq)
        assert looked.state == states[seq]
        assert source.read <= 2_000
        assert looked.stored <= seq
        assert looked.stored > 0 or seq <= 1_000
    assert await found.previous(4_000, lambda event: event.seq % 900 == 0) == 3_600


async def test_a_search_backwards_stops_at_what_it_finds(tmp_path: Path) -> None:
    source = Counted(FileSource(written(tmp_path / "s.jsonl", chain(10_000))))
    found = await tape.opened(source)
    await found.state(10_000)
    source.read = 0
    assert await found.previous(9_000, lambda event: event.seq % 700 == 0) == 8_400
    assert source.read <= 2_000
    assert await found.previous(9_000, lambda event: event.seq == 2) == 2
    assert await found.previous(9_000, lambda _: False) is None
    assert await found.next(8_400, lambda event: event.seq % 700 == 0) == 9_100


async def test_pages_are_kept_while_their_events_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = chain(4_000)
    source = Counted(FileSource(written(tmp_path / "s.jsonl", events)))
    found = await tape.opened(source)
    await found.state(4_000)
    source.read = 0
    assert (await found.event(500)).seq == 500
    assert source.read == 0
    monkeypatch.setattr(tape, "PAGE_BYTES", 2_500 * len(events[-1].body))
    small = await tape.opened(source)
    await small.state(4_000)
    assert small.is_at_hand(4_000)
    assert small.is_at_hand(3_000)
    assert not small.is_at_hand(1_000)


async def test_a_seq_behind_the_last_is_named(tmp_path: Path) -> None:
    found = await tape.opened(FileSource(written(tmp_path / "s.jsonl", chain(3))))
    with pytest.raises(NotThere, match="has no event 4: its last is 3"):
        await found.event(4)
    with pytest.raises(NotThere):
        await found.state(4)


async def test_a_damaged_log_is_a_tape_to_its_last_good_event(log: Log) -> None:
    session = names.mint()
    events = chain(6, session=session)
    await write(log, session, [*events[:3], *events[4:]])
    found = await tape.opened(LiveSource(log, session))
    assert found.last == 3
    assert "damaged after seq 3" in (found.damage or "")
    assert (await found.state(3)).state.seq == 3
    with pytest.raises(NotThere):
        await found.event(4)


async def test_a_file_with_a_changed_line_is_a_tape_to_the_line_before(tmp_path: Path) -> None:
    events = chain(6)
    path = written(tmp_path / "s.jsonl", events)
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":7'))
    found = await tape.opened(FileSource(path))
    assert [event.seq async for event in found.events()] == [1, 2, 3]
    assert (found.last, "damaged after seq 3" in (found.damage or "")) == (3, True)


async def test_lines_that_are_no_events_stand_beside_them(tmp_path: Path) -> None:
    events = chain(3)
    path = tmp_path / "s.jsonl"
    aside = b'{"v":1,"type":"blob","data":"AAAA"}\n'
    path.write_bytes(aside + aside.join(event.body + b"\n" for event in events) + aside + b"\n")
    found = await tape.opened(FileSource(path))
    assert found.last == 3
    assert [event.seq async for event in found.events()] == [1, 2, 3]
    assert found.damage is None


async def test_blobs_may_stand_anywhere_whatever_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, path = chain(6), tmp_path / "s.jsonl"
    aside = b'{"v":1,"type":"blob","data":"%s"}\n' % (b"A" * 900)
    monkeypatch.setattr(exported, "BYTES", 1_000)
    lines = [event.body + b"\n" for event in events]
    for before in range(7):
        path.write_bytes(b"".join([*lines[:before], aside * 20, *lines[before:]]))
        found = await tape.opened(FileSource(path))
        assert [event.seq async for event in found.events()] == [1, 2, 3, 4, 5, 6]
        assert (await found.state(6)).state.seq == 6
        assert (found.last, found.damage) == (6, None)
    path.write_bytes(b"".join([*lines[:2], aside * 20, *lines[3:]]))
    found = await tape.opened(FileSource(path))
    assert [event.seq async for event in found.events()] == [1, 2]
    assert "damaged after seq 2" in (found.damage or "")


async def test_the_last_event_is_found_before_chunks_that_are_larger_than_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, path = chain(30), tmp_path / "s.jsonl"
    whole = b"".join(event.body + b"\n" for event in events)
    chunks = b"".join(b'{"v":1,"type":"blob","data":"%s"}\n' % (b"A" * n) for n in (9, 700, 3_000))
    for window in (1, 64, 700, 1 << 20):
        monkeypatch.setattr(exported, "BYTES", window)
        for text in (whole, whole + chunks, whole[:-1], whole + chunks + b"\n\n", b"\n" + whole):
            path.write_bytes(text)
            assert (await FileSource(path).open()).last == 30


async def test_effects_are_looked_for_so_far_and_it_is_said_how_far(tmp_path: Path) -> None:
    call = {"call_id": "c", "name": "mail", "arguments": {}}
    events = chain(4)
    for n in range(8):
        kind = "tool_call" if n in {1, 7} else "note"
        events.append(follow(events[-1], type=kind, payload={**call, "call_id": f"c{n}"}))
    source = Counted(FileSource(written(tmp_path / "s.jsonl", events)))
    found = await tape.opened(source)
    near = await effects.effects(found.events, after=3, among=5)
    assert (near.count, near.upto) == (1, 8)
    said = "1 external effect after 3 is not undone: 6 mail; what lies behind 8 was not looked at"
    assert effects.told(near, after=3) == said
    whole = await effects.effects(found.events, after=7, among=5)
    assert (whole.count, whole.upto) == (1, None)
    none = await effects.effects(found.events, after=6, among=5)
    assert effects.told(none, after=6) == (
        "no external effect up to 11; what lies behind 11 was not looked at"
    )


async def test_a_file_without_a_session_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("{}\nhello\n")
    with pytest.raises(NoSession, match=r"notes\.jsonl holds no session"):
        await tape.opened(FileSource(path))


async def test_a_branch_that_a_later_writer_won_is_read_anew(log: Log) -> None:
    session = names.mint()
    first, *lost = chain(3, session=session)
    won = follow(
        first,
        type="session_resumed",
        payload={"writer": {"number": 2, "id": "b"}},
        session=session,
    )
    last = await write(log, session, [first, *lost])
    found = await tape.opened(LiveSource(log, session))
    assert (await found.state(3)).state == folded([first, *lost])[3]
    assert (await found.event(2)).body == lost[0].body
    later = follow(won, session=session)
    await write(log, session, [won, later], last=last)
    assert await found.grow()
    assert (await found.state(3)).state == folded([first, won, later])[3]
    assert [event.digest async for event in found.events(until=2)] == [first.digest, won.digest]
    assert (await found.event(2)).body == won.body


async def test_what_is_appended_meanwhile_is_found_when_it_is_asked_for(log: Log) -> None:
    session = names.mint()
    events = chain(5, session=session)
    last = await write(log, session, events[:3])
    found = await tape.opened(LiveSource(log, session))
    assert (found.last, await found.grow()) == (3, False)
    await write(log, session, events[3:], last=last)
    assert (await found.grow(), found.last) == (True, 5)
    assert (await found.event(5)).body == events[4].body


async def test_a_sealed_base_is_read_before_what_is_live(log: Log) -> None:
    session = names.mint()
    events = chain(3, session=session)
    await write(log, session, [*events, seal(events, session=session)], part="base")
    await write(log, session, [follow(events[-1], session=session)])
    found = await tape.opened(LiveSource(log, session))
    assert [event.seq async for event in found.events()] == [1, 2, 3, 4]
    assert (await found.state(2)).state.seq == 2


async def test_a_session_that_is_not_there_is_no_tape(log: Log) -> None:
    with pytest.raises(NoSuchSession):
        await tape.opened(LiveSource(log, names.mint()))
