"""Purging: every step can be the last of a crashed process, and whoever comes late is told."""

import asyncio

import pytest

import flightlog
from flightlog import LogCorrupt, NoSuchSession, SessionPurged
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import Notices
from flightlog.log import Log
from flightlog.reading import reader
from flightlog.snapshot import SESSION
from flightlog.subscribing import standing
from flightlog.subscribing.letter import letters
from flightlog_recorder.purge import finish, purge, unfinished
from flightlog_recorder.purge.purge import ConsumersBehind, Reason, look
from flightlog_recorder.purge.steps import Bury, Clear, Done, ReleaseKey, Seen, next_step

WHY = Reason(by="an auditor", why="a test")


def bus_of(log: Log) -> NatsBus:
    assert isinstance(log.bus, NatsBus)
    return log.bus


async def recorded(log: Log, key: str = "k") -> str:
    async with log.session(key=key) as session:
        await session.user_message("hello")
        await session.checkpoint({"n": "large" * 100_000})
        return session.id


def test_the_key_goes_first_and_the_tombstone_before_anything_is_deleted() -> None:
    assert next_step(Seen(live=9, live_count=3, is_held=True)) == ReleaseKey()
    assert next_step(Seen(live=9, live_count=3, digest="d")) == Bury(9, "d")
    assert next_step(Seen(live=10, live_count=4, is_buried=True, base=5)) == Clear("live", 10)
    assert next_step(Seen(live=10, live_count=1, is_buried=True, base=5)) == Clear("base", 6)
    assert next_step(Seen(live=10, live_count=1, is_buried=True, blobs=3)) == Clear("blob", 4)
    assert next_step(Seen(live=10, live_count=1, is_buried=True, inbox=7)) == Clear("inbox", 8)
    assert next_step(Seen(live=10, live_count=1, is_buried=True, letters=8)) == Clear("dead", 9)
    buried = Seen(live=10, live_count=4, is_buried=True, is_held=True)
    assert next_step(buried) == ReleaseKey()
    assert next_step(Seen(live=10, live_count=1, is_buried=True)) == Done()


async def test_a_purged_session_is_gone_and_its_key_mints_anew(nats_url: str) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        session = await recorded(log)
        await log.say(session, "a secret in the inbox")
        done = await purge(log, bus_of(log), session, reason=WHY)
        assert done.messages == 6  # four events, a chunk of a blob and the inbox item
        with pytest.raises(SessionPurged):
            await log.state(session)
        with pytest.raises(SessionPurged):
            async with log.session(id=session):
                pass
        async with log.session(key="k") as again:
            assert again.id != session


async def test_a_purge_waits_for_a_subscriber_until_it_is_removed_and_takes_its_letters(
    nats_url: str,
) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        bus = bus_of(log)
        async with log.subscribe("mail", types=["checkpoint"]) as subscription:
            session = await recorded(log)
            async with asyncio.timeout(15):
                async for delivery in subscription:
                    await delivery.dead("no such address")
                    break
            async with log.subscribe("gone", start="all"):
                pass
            with pytest.raises(ConsumersBehind, match="gone@default"):
                await purge(log, bus, session, reason=WHY, patience=0.5)
            assert await standing.remove(bus, log.tenant, "gone") == 3
            assert [each.seq async for each in letters(bus, log.tenant)] == [3]
            await purge(log, bus, session, reason=WHY)
            assert [each.seq async for each in letters(bus, log.tenant)] == []


async def test_purging_twice_changes_nothing_and_a_session_that_never_was_is_named(
    nats_url: str,
) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        session = await recorded(log)
        await purge(log, bus_of(log), session, reason=WHY)
        assert (await purge(log, bus_of(log), session, reason=WHY)).messages == 0
        with pytest.raises(NoSuchSession):
            await purge(log, bus_of(log), "sess_never", reason=WHY)


async def test_a_writer_that_comes_late_meets_the_tombstone(nats_url: str) -> None:
    async with flightlog.connect(nats=nats_url) as late, flightlog.connect(nats=nats_url) as log:
        with pytest.raises(SessionPurged):
            async with late.session(key="k") as session:
                await session.user_message("hello")
                await purge(log, bus_of(log), session.id, reason=WHY)
                await session.user_message("too late")


async def test_after_the_tombstones_end_a_late_writer_is_refused_all_the_same(
    nats_url: str,
) -> None:
    async with flightlog.connect(nats=nats_url) as late, flightlog.connect(nats=nats_url) as log:
        async with late.session(key="k") as session:
            await session.listener.close()  # a frozen process hears nothing
            brief = Reason(by="an auditor", why="a test", life=1)
            await purge(log, bus_of(log), session.id, reason=brief)
            async with asyncio.timeout(15):
                while (await look(log, bus_of(log), session.id)).live:
                    await asyncio.sleep(0.05)
            with pytest.raises(LogCorrupt):
                await session.user_message("too late")
        with pytest.raises(NoSuchSession):
            await log.state(session.id)


@pytest.mark.parametrize("steps", range(5))
async def test_a_purge_that_crashed_after_any_step_is_finished(
    nats_url: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    async with flightlog.connect(nats=nats_url) as log:
        session = await recorded(log)
        await log.say(session, "in the inbox")
        bus, taken = bus_of(log), 0
        real_append, real_purge = bus.append, bus.purge

        async def counted(real: object, *args: object, **named: object) -> object:
            nonlocal taken
            if taken == steps:
                raise Crash
            taken += 1
            return await real(*args, **named)  # type: ignore[operator]

        monkeypatch.setattr(bus, "append", lambda *a, **n: counted(real_append, *a, **n))
        monkeypatch.setattr(bus, "purge", lambda *a, **n: counted(real_purge, *a, **n))
        with pytest.raises(Crash):
            await purge(log, bus, session, reason=WHY)
        monkeypatch.undo()
        buried = steps >= 2
        assert [found async for found in unfinished(log, bus)] == ([session] if buried else [])
        if buried:
            await finish(log, bus, session)
        else:
            await purge(log, bus, session, reason=WHY)
        seen = await look(log, bus, session)
        assert (seen.is_buried, seen.live_count, seen.inbox, seen.blobs) == (True, 1, 0, 0)
        assert await log.look_up("k") is None
        assert [found async for found in unfinished(log, bus)] == []


async def test_a_consumer_that_has_not_seen_the_last_event_is_waited_for_or_robbed_by_name(
    nats_url: str,
) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        bus = bus_of(log)
        await Notices(bus, bus.layout.streams[0], "slow").open()
        session = await recorded(log)
        with pytest.raises(ConsumersBehind, match="slow"):
            await purge(log, bus, session, reason=WHY, patience=0.0)
        assert (await log.state(session)).seq == 4
        done = await purge(log, bus, session, reason=WHY, force=True)
        assert done.robbed == ["slow"]


async def test_a_purged_fork_is_purged_for_who_holds_a_snapshot_of_its_base(nats_url: str) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        fork = await log.fork(await recorded(log))
        folded = await reader.fold(log.bus, log.tenant, fork, SESSION)
        assert folded.part == "base"
        snapshot = reader.snapshot_of(SESSION, folded)
        await purge(log, bus_of(log), fork, reason=WHY)
        again = await reader.fold(log.bus, log.tenant, fork, SESSION, snapshot=snapshot)
        assert again.presence == "purged"
