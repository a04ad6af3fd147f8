"""Opening a session: what is there is folded, then owned by one process alone."""

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest
import redis
from msgspec import Raw
from msgspec.structs import replace

from flightlog import (
    AwaitUser,
    BusUnavailable,
    CallModel,
    Fenced,
    InvalidValue,
    Log,
    LogCorrupt,
    NoSuchSession,
    SessionPurged,
    Snapshot,
    clock,
    connect,
    snapshot,
)
from flightlog.bus.nats_bus import connect_bare, create_streams
from flightlog.bus.patience import ANSWER_TIMEOUT
from flightlog.bus.protocol import Outgoing
from flightlog.cache.cut import Cut
from flightlog.event import Event
from flightlog.reading.chain import Head
from flightlog.reading.reader import Folded, Passed
from flightlog.running import opening
from flightlog.running.journal import Journal
from flightlog.running.opening import Wanted
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog.writing import keys
from flightlog_recorder.embedded import Server
from tests.cluster import Cluster
from tests.handmade import chain, follow, seal, tombstone
from tests.scripted import TENANT, owed, payloads, stored, types
from tests.sim.loop import VirtualLoop

MakeRedis = Callable[..., Server]


def wanted(id: str, **more: Any) -> Wanted:
    """How a process asks for a session by its id."""
    given: dict[str, Any] = {
        "made_by": "session",
        "key": None,
        "labels": {},
        "policies": {},
        "reopen": False,
    }
    return Wanted(tenant=TENANT, id=id, harness_version="1", **given | more)


async def own(
    log: Log, folded: Folded[SessionState], asked: Wanted, *, patience: float = 5
) -> Journal:
    """Try to own a session on the ground of an earlier look."""
    journal = Journal(asked.id, folded.state, redact=None, on_event=None)
    until = asyncio.get_running_loop().time() + patience
    journal.appender = (await opening.own(log.bus, asked, folded, journal, until=until)).appender
    return journal


async def put(log: Log, session: str, part: str, *bodies: bytes) -> None:
    """Store bodies on a session's subject, whatever they are."""
    subject = names.log_subject(TENANT, session, part)
    last = await log.bus.after(log.bus.layout.stream_of(session), subject, 0, leader=True)
    assert last is None
    await log.bus.append(subject, [Outgoing(body, {}) for body in bodies], expected=0, timeout=5)


async def test_an_id_never_creates_a_session(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(NoSuchSession, match="sess_nobody"):
            async with log.session(id="sess_nobody"):
                pytest.fail("it must not open")
        with pytest.raises(NoSuchSession):
            await log.state("sess_nobody")
        assert await stored(log, "sess_nobody") == []


async def test_a_key_whose_log_is_empty_is_started_by_whoever_opens_it(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        entry = await keys.claim(log.bus, TENANT, "k")
        with pytest.raises(NoSuchSession):
            async with log.session(id=entry.id):
                pytest.fail("it must not open")
        async with log.session(key="k") as s:
            assert s.id == entry.id
            assert s.state.writer == 1
        (started,) = await payloads(log, s.id, "session_started")
        assert started["key"] == "k"
        assert started["writer"]["number"] == 1
        assert len(started["writer"]["id"]) == 32


async def test_an_import_or_a_fork_without_its_seal_is_waited_for_and_then_named(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opening.SEAL_PATIENCE == 5.0
    monkeypatch.setattr(opening, "SEAL_PATIENCE", 0.2)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        entry = await keys.claim(log.bus, TENANT, "k", made_by="import")
        with pytest.raises(NoSuchSession, match="not sealed"):
            async with log.session(key="k"):
                pytest.fail("it must not open")
        await put(log, entry.id, "base", chain(2, session=entry.id)[0].body)
        with pytest.raises(NoSuchSession, match="not sealed"):
            async with log.session(key="k"):
                pytest.fail("it must not open")


async def test_a_sealed_base_is_opened_and_gone_on_with(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        entry = await keys.claim(log.bus, TENANT, "k", made_by="import")
        said = follow(
            None, type="user_message", payload={"content": "once upon a time"}, session=entry.id
        )
        base = [said, follow(said, type="note", session=entry.id)]
        bodies = [*(event.body for event in base), seal(base, session=entry.id)]
        await put(log, entry.id, "base", *bodies)
        async with log.session(key="k") as s:
            assert s.state.seq == 3
            assert owed(s) == CallModel()
        assert (await types(log, entry.id))[:3] == ["user_message", "note", "session_resumed"]


@pytest.mark.parametrize("by_key", [True, False])
async def test_a_purged_session_says_so(nats_url: str, by_key: bool) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        entry = await keys.claim(log.bus, TENANT, "k")
        await put(log, entry.id, "live", tombstone(session=entry.id))
        how: dict[str, Any] = {"key": "k"} if by_key else {"id": entry.id}
        with pytest.raises(SessionPurged, match=entry.id):
            async with log.session(**how):
                pytest.fail("it must not open")
        with pytest.raises(SessionPurged):
            await log.state(entry.id)


async def test_a_writer_meets_the_tombstone_that_came_meanwhile(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        s = None
        with pytest.raises(SessionPurged):
            async with log.session() as s:
                subject = names.log_subject(TENANT, s.id, "live")
                assert s._journal.appender is not None
                await log.bus.append(
                    subject,
                    [Outgoing(tombstone(session=s.id), {})],
                    expected=s._journal.appender.writer.expected,
                    timeout=5,
                )
                await s.user_message("too late")
        assert s is not None
        assert s._journal.stopped is not None


async def test_a_key_and_an_id_together_are_refused(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(InvalidValue):
            async with log.session(key="k", id="sess_1"):
                pytest.fail("it must not open")
        assert await log.look_up("k") is None


@pytest.mark.parametrize(
    "given",
    [
        {"key": "\ud800"},
        {"key": "x" * 5_000},
        {"harness_version": "x" * 5_000},
        {"harness_version": 3},
        {"labels": {"a": 1}},
        {"labels": {"a": "\ud800"}},
        {"labels": {2: "b"}},
    ],
)
async def test_what_no_event_could_hold_is_refused_before_anything_is_sent(
    nats_url: str, given: dict[str, Any]
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(InvalidValue):
            given = {"key": "k"} | given
            async with log.session(**given):
                pytest.fail("it must not open")
        assert await log.look_up("k") is None


async def test_the_session_key_is_taken_from_the_environment(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        monkeypatch.setenv("FLIGHTLOG_SESSION_KEY", "from the pod")
        async with log.session() as s:
            assert s.key == "from the pod"
        async with log.session(id=s.id), log.session(key="another") as other:
            assert other.id != s.id
        monkeypatch.setenv("FLIGHTLOG_SESSION_KEY", "")
        async with log.session() as fresh:
            assert fresh.key is None


async def test_of_two_resumers_one_wins_and_the_other_is_fenced(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.user_message("hi")
        asked = wanted(s.id)
        looks = [await opening.look(log.bus, asked, None) for _ in range(4)]
        done = await asyncio.gather(*(own(log, f, asked) for f in looks), return_exceptions=True)
        winners = [each for each in done if isinstance(each, Journal)]
        assert len(winners) == 1
        assert sum(isinstance(each, Fenced) for each in done) == 3
        assert (await types(log, s.id)).count("session_resumed") == 1
        await winners[0].append("note", Raw(b'"mine"'))


async def test_of_two_starters_one_wins_and_the_other_is_fenced(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        asked = wanted("sess_new")
        looks = [await opening.look(log.bus, asked, None) for _ in range(2)]
        done = await asyncio.gather(*(own(log, f, asked) for f in looks), return_exceptions=True)
        assert sorted(type(each).__name__ for each in done) == ["Fenced", "Journal"]
        assert await types(log, "sess_new") == ["session_started"]


async def test_what_the_old_writer_adds_meanwhile_is_folded_in_and_opening_goes_on(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        asked = wanted(s.id)
        look = await opening.look(log.bus, asked, None)
        await s.user_message("one more")
        journal = await own(log, look, asked)
        assert journal.state.writer == 2
        assert journal.state.counts["user_message"] == 1
        with pytest.raises(Fenced):
            await s.user_message("and another")
        assert await types(log, s.id) == ["session_started", "user_message", "session_resumed"]


async def test_an_opening_that_is_cancelled_leaves_no_writer_behind(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            pass
        look = await opening.look(log.bus, wanted(s.id), None)
        nats_server.kill()
        task = asyncio.create_task(own(log, look, wanted(s.id)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        nats_server.start()
        async with log.session(key="k") as s:
            assert s.state.writer == 2
        left = [t.get_name() for t in asyncio.all_tasks()]
        assert "flightlog-append" not in left


async def test_opening_gives_up_at_its_deadline_and_can_be_tried_again(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            pass
        look = await opening.look(log.bus, wanted(s.id), None)
        nats_server.kill()
        with pytest.raises(BusUnavailable):
            async with log.session(key="k", deadline=0.3):
                pytest.fail("it must not open")
        with pytest.raises(BusUnavailable, match=s.id):
            await own(log, look, wanted(s.id), patience=0.3)
        nats_server.start()
        async with log.session(key="k") as again:
            assert owed(again) == AwaitUser()


A_PAGE = Folded(
    state=SESSION.initial(),
    head=Head(),
    read_to=0,
    strays=(),
    presence="absent",
    tombstone=None,
    used=None,
    tail=0,
    last_live=0,
)


def test_a_log_may_be_as_long_as_it_likes_while_its_pages_keep_coming() -> None:
    async def read(pages: int, seconds: float, passed: Passed[SessionState]) -> None:
        for page in range(pages):
            await asyncio.sleep(seconds)  # on a loop whose time is virtual
            await passed(replace(A_PAGE, head=Head(seq=page)))

    async def opened(pages: int, seconds: float) -> tuple[None, float]:
        work = functools.partial(read, pages, seconds)
        return await opening.page_by_page(work, until=clock.elapsed() + 30)

    with contextlib.closing(VirtualLoop()) as loop:
        _, left = loop.run_until_complete(opened(100, ANSWER_TIMEOUT - 1))
        assert left - loop.time() == ANSWER_TIMEOUT  # what follows has time, too
        _, left = loop.run_until_complete(opened(1, 3))
        assert left - loop.time() == 27  # a short log changes nothing
        with pytest.raises(BusUnavailable):
            loop.run_until_complete(opened(100, 31))


def test_a_page_that_is_read_again_and_again_leaves_no_more_time() -> None:
    async def read(passed: Passed[SessionState]) -> None:
        await passed(A_PAGE)
        await asyncio.sleep(ANSWER_TIMEOUT - 1)
        raise BusUnavailable("a stream", "its second page never comes")

    with contextlib.closing(VirtualLoop()) as loop:
        with pytest.raises(BusUnavailable, match="second page"):
            loop.run_until_complete(opening.page_by_page(read, until=loop.time() + 30))
        assert loop.time() == 30


async def test_resumed_names_what_was_in_flight_and_the_snapshot_that_was_used(
    nats_url: str, redis_url: str
) -> None:
    async with connect(nats=nats_url, redis=redis_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.append("tool_call", {"name": "t", "call_id": "c", "on_resume": "fail"})
        await _snapshot_now(log, s.id)
        async with log.session(id=s.id) as again:
            assert again.resumed_from == (3, 0)
        (resumed,) = await payloads(log, s.id, "session_resumed")
        assert resumed["in_flight"] == [{"call_id": "c", "announced_by": None}]
        assert resumed["snapshot"] == 3


async def test_a_session_resumes_from_its_snapshot_and_the_tail_alone(
    nats_url: str, redis_url: str
) -> None:
    async with connect(nats=nats_url, redis=redis_url, tenant=TENANT) as log:
        async with log.session() as s:
            for n in range(50):
                await s.append("note", n)
            await _snapshot_now(log, s.id)
            for n in range(5):
                await s.append("note", n)
        async with log.session(id=s.id) as again:
            assert again.resumed_from == (51, 6)
            assert again.state.counts["note"] == 55
        whole = [event async for event in log.read(s.id)]
        assert SESSION.encode(again.state) == SESSION.encode(_replayed(whole))


@pytest.mark.parametrize(
    "damage", ["noise", "cut", "flipped", "empty", "a list", "of another", "no state"]
)
async def test_garbage_in_redis_costs_a_replay_and_nothing_else(
    nats_url: str, redis_url: str, damage: str
) -> None:
    async with connect(nats=nats_url, redis=redis_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.user_message("hi")
        broken = {"cut": Cut(b'{"seq":"two"}')} if damage == "no state" else {}
        good = await _snapshot_now(log, s.id, **broken)
        with redis.Redis.from_url(redis_url) as client:
            (key,) = client.keys(f"*{s.id}*snapshots")
            client.delete(key)
            field = f"{SESSION.name}:{SESSION.version}"
            match damage:
                case "noise":
                    client.hset(key, field, b"\x00\xff{}" * 99)
                case "cut":
                    client.hset(key, field, good[: len(good) // 2])
                case "flipped":
                    client.hset(key, field, good[:-9] + bytes([good[-9] ^ 1]) + good[-8:])
                case "empty":
                    client.hset(key, field, b"")
                case "a list":
                    client.rpush(key, b"1")
                case "no state":
                    client.hset(key, field, good)
                case _:
                    client.hset(key, "session:99", good)
        async with log.session(id=s.id) as again:
            assert again.resumed_from == (None, 3)
            assert owed(again) == CallModel()


async def test_a_snapshot_ahead_of_the_log_is_a_log_that_lost_events(
    nats_url: str, redis_url: str
) -> None:
    async with connect(nats=nats_url, redis=redis_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.user_message("hi")
        await _snapshot_now(log, s.id, seq=9, sequence=9_000)
        with pytest.raises(LogCorrupt, match=s.id):
            async with log.session(id=s.id):
                pytest.fail("it must not open")


async def test_redis_that_is_down_slow_full_or_locked_is_gone_on_without(
    nats_url: str, make_redis: MakeRedis
) -> None:
    down, slow, full = make_redis(), make_redis(), make_redis(extra="maxmemory 1mb")
    locked = full.url.replace("://:", "://:wrong")
    down.kill()
    slow.pause()
    for url in (down.url, slow.url, full.url, locked):
        async with connect(nats=nats_url, redis=url, tenant=TENANT) as log:
            async with log.session(key="k") as s:
                await s.user_message("hi")
            async with asyncio.timeout(5):
                async with log.session(key="k") as s:
                    assert owed(s) == CallModel()
    slow.resume()


async def test_redis_that_dies_between_opening_and_resuming_is_gone_on_without(
    nats_url: str, redis_server: Server
) -> None:
    async with connect(nats=nats_url, redis=redis_server.url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("hi")
        await _snapshot_now(log, s.id)
        redis_server.kill()
        async with log.session(key="k") as s:
            assert s.resumed_from == (None, 3)


@pytest.mark.timeout(90)  # a cluster takes seconds to start
async def test_what_was_just_made_on_one_node_is_found_and_resumed_on_another(
    cluster: Cluster,
) -> None:
    async with await connect_bare(cluster.url) as bus:
        await create_streams(bus, replicas=3)
    async with contextlib.AsyncExitStack() as stack:
        logs = [
            await stack.enter_async_context(connect(nats=url, tenant=TENANT))
            for url in cluster.urls
        ]
        for n in range(900):  # one in a hundred looks is stale
            here, there = logs[n % 3], logs[(n + 1) % 3]
            asked = wanted(names.mint())
            await own(here, await opening.look(here.bus, asked, None), asked)
            assert (await there.state(asked.id)).seq == 1
        async with logs[0].session(key="k") as s:
            await s.user_message("hi")
        async with logs[1].session(key="k") as again:
            assert again.state.counts["user_message"] == 1


async def test_a_damaged_log_does_not_open(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        events = chain(4, session="sess_torn")
        await put(log, "sess_torn", "live", *(event.body for event in events if event.seq != 3))
        with pytest.raises(LogCorrupt, match="sess_torn"):
            async with log.session(id="sess_torn"):
                pytest.fail("it must not open")


def _replayed(events: list[Event]) -> SessionState:
    state = SESSION.initial()
    for event in events:
        state = SESSION.apply(state, event)
    return state


async def _snapshot_now(log: Log, id: str, **changed: Any) -> bytes:
    """Store a snapshot as the projector does; what it looks like."""
    folded = await log.fold(id)
    assert folded.digest is not None
    assert log.store is not None
    cut = snapshot.cut(SESSION, folded.state)
    fields: dict[str, Any] = {"seq": folded.seq, "sequence": folded.sequence, "cut": cut}
    value = snapshot.write(
        Snapshot(
            projection=SESSION.name,
            version=SESSION.version,
            schema=1,
            part=folded.part,
            read_to=folded.read_to,
            digest=folded.digest,
            writers=folded.writers,
            **fields | changed,
        )
    )
    saved = await log.store.save_snapshot(
        TENANT, id, SESSION.name, SESSION.version, value, replacing=None
    )
    assert saved
    return value
