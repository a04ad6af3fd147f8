"""Replicas on a stream: whatever dies, is emptied or comes twice, the catalog is whole again."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest
import redis.asyncio as redis

from flightlog import Log, connect
from flightlog.bus.notices import Notices
from flightlog.cache.catalog import Filter
from flightlog.cache.floor import Floor, Floors
from flightlog.errors import BusUnavailable
from flightlog.event import Event
from flightlog.snapshot import SESSION
from flightlog_projector.follower import is_needless
from flightlog_projector.projector import Job, Projected, Projector
from flightlog_recorder.embedded import Server
from flightlog_recorder.inspect import family
from tests.handmade import chain, follow, seal, tombstone
from tests.projector.conftest import TENANT, Replica, StartReplica, World, page, until

STREAM = "FLIGHTLOG_0"
pytestmark = pytest.mark.timeout(60)  # servers and replicas share the machine's cores


def session(n: int) -> str:
    return f"sess_{n:04d}"


def log(n: int, length: int = 3) -> list[Event]:
    return chain(length, session=session(n))


async def quiet(world: World) -> bool:
    """Whether every notice is acknowledged."""
    standing = await Notices(world.bus, STREAM, "projector").info()
    return standing.pending == standing.ack_pending == 0


async def all_quiet(world: World) -> None:
    await until(lambda: quiet(world))


async def test_a_row_is_there_within_two_seconds_and_its_notices_are_acknowledged(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    await world.put(session(1), *log(1))
    row = await world.reaches(session(1), 3, timeout=2.0)
    assert row.counts == {"note": 3}
    await all_quiet(world)
    assert replica.value("rows_total") >= 1
    assert replica.value("events_total") >= 3


async def test_a_busy_session_is_folded_in_groups_of_notices(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    for event in log(1, length=600):
        await world.put(session(1), event)
    await world.reaches(session(1), 600)
    await all_quiet(world)
    assert replica.value("fold_seconds_count") < 60


async def test_what_was_written_before_any_projector_ran_is_projected(
    world: World, start_replica: StartReplica
) -> None:
    for n in range(40):
        await world.put(session(n), *log(n))
    await start_replica()
    for n in range(40):
        await world.reaches(session(n), 3)
    await all_quiet(world)


async def test_several_replicas_share_the_work_and_agree(
    world: World, start_replica: StartReplica
) -> None:
    replicas = [await start_replica() for _ in range(3)]
    logs = {n: log(n, length=130) for n in range(12)}
    for start in range(0, 130, 26):
        for n, events in logs.items():
            await world.put(session(n), *events[start : start + 26])
    for n in logs:
        assert (await world.reaches(session(n), 130)).counts == {"note": 130}
    await all_quiet(world)
    assert await world.listed(Filter(status="new")) == {session(n) for n in logs}
    assert sum(replica.value("notices_total") > 0 for replica in replicas) > 1


async def test_a_replica_that_is_killed_in_the_middle_loses_nothing(
    world: World, start_replica: StartReplica
) -> None:
    first = await start_replica(folds=1)
    await first.ready()
    for n in range(60):
        await world.put(session(n), *log(n, length=20))
    await until(lambda: some_rows(world))
    await first.kill()
    second = await start_replica()
    await second.ready()
    for n in range(60):
        # what the first took and did not acknowledge is the second's only from the floor on
        await world.reaches(session(n), 20)


async def some_rows(world: World) -> bool:
    return len(await world.listed()) > 5


async def test_a_flushed_redis_is_whole_again_without_a_command(
    world: World, start_replica: StartReplica
) -> None:
    replicas = [await start_replica(), await start_replica()]
    for n in range(20):
        await world.put(session(n), *log(n, length=110))
    for n in range(20):
        await world.reaches(session(n), 110)
    await all_quiet(world)
    for replica in replicas:
        await replica.ready()
    await world.flush()
    for n in range(20):
        assert (await world.reaches(session(n), 110)).counts == {"note": 110}
    for replica in replicas:
        await replica.ready()
    assert await world.store.snapshot("acme", session(0), "session", SESSION.version) is not None


async def test_a_flushed_redis_finds_forks_and_children_under_their_origin_again(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    async with connect(nats=world.nats.url, redis=world.redis.url, tenant=TENANT) as log:
        async with log.session(key="source") as source:
            await source.user_message("hello")
            async with source.child(name="helper") as child:
                await child.user_message("help")
        forks = [await log.fork(source.id, at=2), await log.fork(source.id)]
        grandchild = await log.fork(forks[0])  # these have a base and nothing else
        sessions = {source.id, child.id, *forks, grandchild}
        for each in sessions:
            await world.reaches(each, 2)
        await replica.ready()
        before = await family_of(log, grandchild)
        await world.flush()
        for each in sessions:
            await world.reaches(each, 2)
        await replica.ready()
        assert await family_of(log, grandchild) == before
        assert {row.session for row in (await log.sessions(fork_of=source.id)).rows} == {*forks}
    assert before == {
        source.id: None,
        child.id: source.id,
        forks[0]: source.id,
        forks[1]: source.id,
        grandchild: forks[0],
    }


async def family_of(log: Log, session: str) -> dict[str, str | None]:
    return {each.session: each.origin for each in (await family.of(log, session)).members}


async def test_a_replica_is_not_ready_while_it_rebuilds_and_the_catalog_says_so(
    world: World, start_replica: StartReplica
) -> None:
    first = await start_replica()
    await first.ready()
    for n in range(30):
        await world.put(session(n), *log(n))
    await all_quiet(world)
    await first.stop()
    await world.flush()
    assert await Floors(world.store, STREAM).rebuilding()
    slow = await start_replica(rebuild_rate=20)
    await until(lambda: some_rows(world))
    assert await slow.service.unready() == f"rebuilding {STREAM}"
    assert await Floors(world.store, STREAM).rebuilding()
    assert slow.value("rebuilding", stream=STREAM) == 1
    await slow.ready()
    assert not await Floors(world.store, STREAM).rebuilding()
    assert await world.listed() == {session(n) for n in range(30)}


async def test_a_rebuild_starts_with_the_newest_sessions(
    world: World, start_replica: StartReplica
) -> None:
    first = await start_replica()
    for n in range(30):
        await world.put(session(n), *log(n))
    await all_quiet(world)
    await first.stop()
    await world.flush()
    await start_replica(rebuild_rate=20)
    await until(lambda: some_rows(world))
    found = await world.listed()
    assert session(29) in found
    assert session(0) not in found


async def test_an_older_dump_of_redis_is_brought_up_to_date(
    world: World, start_replica: StartReplica, tmp_path: Path
) -> None:
    server = world.redis
    replica = await start_replica()
    for n in range(10):
        await world.put(session(n), *log(n))
    for n in range(10):
        await world.reaches(session(n), 3)
    await replica.ready()
    server.stop()
    shutil.copytree(server.home / "store", tmp_path / "dump")
    server.start()
    for n in range(10, 20):
        await world.put(session(n), *log(n))
    for n in range(10, 20):
        await world.reaches(session(n), 3)
    await all_quiet(world)
    server.kill()
    shutil.rmtree(server.home / "store")
    shutil.copytree(tmp_path / "dump", server.home / "store")
    server.start()
    for n in range(20):
        await world.reaches(session(n), 3)


async def test_rows_that_a_crash_of_redis_took_with_it_are_written_again(
    world: World, start_replica: StartReplica, tmp_path: Path
) -> None:
    server = world.redis
    replica = await start_replica()
    await replica.ready()
    await world.put(session(0), *log(0))
    await world.reaches(session(0), 3)
    await until(lambda: is_copied(server, tmp_path))
    await world.put(session(1), *log(1))
    await world.reaches(session(1), 3)
    await all_quiet(world)
    server.kill()
    shutil.rmtree(server.home / "store")
    shutil.copytree(tmp_path / "dump", server.home / "store")
    server.start()
    await world.reaches(session(1), 3)


async def is_copied(server: Server, tmp_path: Path) -> bool:
    """Copy what Redis has on disk, once session 0 is there: a disk that lost its last second."""
    dump = tmp_path / "dump"
    shutil.rmtree(dump, ignore_errors=True)
    shutil.copytree(server.home / "store", dump)
    files = [path for path in dump.rglob("*") if path.is_file()]
    return any(session(0).encode() in path.read_bytes() for path in files)


async def test_a_redis_that_is_away_for_a_while_only_delays(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica(stall_timeout=2)
    await replica.ready()
    began = time.monotonic()
    world.redis.kill()
    await world.put(session(1), *log(1))

    async def noticed() -> bool:
        return replica.value("hindrances_total", what="StoreUnavailable") > 5

    await until(noticed)
    assert time.monotonic() - began > 2
    assert await page(replica.service.port, "/livez") == (200, "ok")
    assert await replica.service.unready() == "Redis does not answer"
    world.redis.start()
    await world.reaches(session(1), 3)
    await replica.ready()
    assert not replica.task.done()


async def test_a_broker_that_restarts_is_followed_on(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    for n in range(2):
        await world.put(session(n), *log(n))
        world.nats.kill()
        world.nats.start()
        await until(lambda: is_back(world))
        await world.put(session(n + 10), *log(n + 10))
        await world.reaches(session(n + 10), 3)
        await world.reaches(session(n), 3)


async def is_back(world: World) -> bool:
    try:
        await quiet(world)
    except BusUnavailable:
        return False
    return True


async def test_a_subscription_that_falls_silent_is_made_anew(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    (follower,) = replica.service.followers
    subscription = follower._notices._subscription
    assert subscription is not None
    await subscription.unsubscribe()
    await world.put(session(1), *log(1))
    await world.reaches(session(1), 3, timeout=8)


async def test_a_consumer_that_others_deleted_is_made_again(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    await world.bus.api(f"CONSUMER.DELETE.{STREAM}.projector")
    await world.put(session(1), *log(1))
    await world.reaches(session(1), 3)


async def test_lost_acknowledgements_cost_a_look_and_no_fold(
    world: World, start_replica: StartReplica
) -> None:
    first = await start_replica()
    for n in range(20):
        await world.put(session(n), *log(n))
    await all_quiet(world)
    await first.stop()
    await world.bus.api(f"CONSUMER.DELETE.{STREAM}.projector")
    second = await start_replica()
    await second.ready()
    await all_quiet(world)
    assert second.value("fold_seconds_count") == 0
    assert second.value("notices_total") == 60


async def test_a_poison_session_never_blocks_the_others(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    bad = log(0, length=5)
    await world.put(session(0), *bad[:2], bad[4])
    for n in range(1, 20):
        await world.put(session(n), *log(n))
    for n in range(1, 20):
        await world.reaches(session(n), 3)
    await until(lambda: is_damaged(world, session(0)))
    await all_quiet(world)
    assert await Floors(world.store, STREAM).aside() == [("acme", session(0))]


async def is_damaged(world: World, name: str) -> bool:
    row = await world.row(name)
    return row is not None and row.error is not None


async def test_a_session_that_was_set_aside_is_tried_again_by_the_next_replica(
    world: World, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("flightlog_projector.projector.SESSION", _Broken())
        first = await start_replica()
        await first.ready()
        await world.put(session(1), *log(1))
        await until(lambda: is_damaged(world, session(1)))
        await all_quiet(world)
        await first.stop()
    second = await start_replica()
    row = await world.reaches(session(1), 3)
    assert row.error is None
    await until(lambda: none_aside(world))
    await until(lambda: is_zero(second, "set_aside_sessions"))


class _Broken:
    """A projection with a bug, which the next version mends."""

    name = "session"
    version = 1

    def initial(self) -> None:
        raise ZeroDivisionError


async def none_aside(world: World) -> bool:
    return await Floors(world.store, STREAM).aside() == []


async def is_zero(replica: Replica, name: str) -> bool:
    return replica.value(name, stream=STREAM) == 0


async def test_garbage_under_our_keys_is_replaced(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await world.put(session(1), *log(1, length=120))
    await world.reaches(session(1), 120)
    await replica.ready()
    async with redis.Redis.from_url(world.redis.url) as client:
        for key in [key async for key in client.scan_iter("flightlog:*")]:
            await client.delete(key)
            await client.lpush(key, "garbage")
    assert (await world.reaches(session(1), 120)).counts == {"note": 120}
    await replica.ready()


async def test_bytes_that_are_no_text_under_our_keys_are_replaced(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await world.put(session(1), *log(1, length=3))
    await world.reaches(session(1), 3)
    await replica.ready()
    async with redis.Redis.from_url(world.redis.url) as client:
        for part in ("tenant:*:row", f"stream:{{{STREAM}}}:echo", f"stream:{{{STREAM}}}:floor"):
            (key,) = [key async for key in client.scan_iter(f"flightlog:{part}*")]
            await client.set(key, b"\xff\x00garbage")
    assert (await world.reaches(session(1), 3)).counts == {"note": 3}
    await replica.ready()


async def test_a_tombstone_forgets_a_session_for_every_replica(
    world: World, start_replica: StartReplica
) -> None:
    await start_replica()
    await start_replica()
    await world.put(session(1), *log(1, length=110))
    await world.reaches(session(1), 110)
    await world.put(session(1), tombstone(session=session(1)))
    await until(lambda: is_gone(world, session(1)))
    await all_quiet(world)
    assert await world.listed() == set()
    assert await world.store.snapshot("acme", session(1), "session", SESSION.version) is None


async def is_gone(world: World, name: str) -> bool:
    return await world.row(name) is None


async def test_a_base_shows_up_with_its_seal_and_not_before(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    events = log(1, length=50)
    await world.put(session(1), *events, part="base")
    await all_quiet(world)
    assert await world.row(session(1)) is None
    await world.put(session(1), seal(events, session=session(1)), part="base")
    await world.reaches(session(1), 50)
    await world.put(session(1), follow(events[-1], session=session(1)))
    await world.reaches(session(1), 51)


@pytest.mark.parametrize(
    ("part", "type", "needless"),
    [
        ("base", "note", True),
        ("base", "seal", False),
        ("base", "tombstone", False),
        ("base", "", False),
        ("live", "note", False),
    ],
)
def test_only_events_of_a_base_need_no_fold(part: str, type: str, needless: bool) -> None:
    assert is_needless(part, type) is needless


class Held:
    """Folds that wait until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        project = Projector.project

        async def held(projector: Projector, job: Job) -> Projected:
            self.begun.set()
            await self.let_go.wait()
            return await project(projector, job)

        monkeypatch.setattr(Projector, "project", held)


async def test_a_stopping_replica_finishes_what_it_has_and_acknowledges_it(
    world: World, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await start_replica()
    await replica.ready()
    held = Held(monkeypatch)
    await world.put(session(1), *log(1))
    await held.begun.wait()
    replica.service.stop()
    done, _ = await asyncio.wait({replica.task}, timeout=1)
    assert not done
    held.let_go.set()
    await replica.task
    assert await world.row(session(1)) is not None
    assert [follower.left for follower in replica.service.followers] == [0]
    await all_quiet(world)


async def test_a_stopping_replica_finishes_a_session_that_rests_from_its_last_fold(
    world: World, start_replica: StartReplica
) -> None:
    replica = await start_replica()
    await replica.ready()
    events = log(1)
    await world.put(session(1), *events)
    await all_quiet(world)
    await world.put(session(1), follow(events[-1]))
    [follower] = replica.service.followers

    async def in_hand() -> bool:
        return follower.left > 0

    await until(in_hand)
    replica.service.stop()
    await replica.task
    assert follower.left == 0
    row = await world.row(session(1))
    assert row is not None
    assert row.read_to == 4


async def test_a_stopping_replica_does_not_wait_longer_than_its_deadline(
    world: World, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await start_replica(drain_timeout=0.3)
    await replica.ready()
    held = Held(monkeypatch)
    await world.put(session(1), *log(1))
    await held.begun.wait()
    replica.service.stop()
    await asyncio.wait_for(replica.task, 5)
    assert [follower.left for follower in replica.service.followers] == [3]
    assert await world.row(session(1)) is None


async def test_a_floor_beyond_the_end_of_the_stream_is_not_believed(
    world: World, start_replica: StartReplica
) -> None:
    await world.put(session(1), *log(1))
    notices = Notices(world.bus, STREAM, "projector")
    await notices.open()
    left = 3
    while left:
        await notices.ack(found := await notices.fetch(10, 5))
        left -= len(found)
    await all_quiet(world)
    await notices.close()
    floors = Floors(world.store, STREAM, replica="of another stream")
    await floors.claim()
    await floors.create(Floor("g", 1_000_000))
    await floors.release()
    replica = await start_replica()
    await world.reaches(session(1), 3)
    await replica.ready()
    assert await floors.floor() != Floor("g", 1_000_000)
