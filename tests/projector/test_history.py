"""The snapshots that are kept of a session: near each other, right, and gone when they must be."""

import pytest

from flightlog.cache.shelf import NOTHING, Shelf
from flightlog.event import Event
from flightlog.snapshot import SESSION, join
from flightlog_projector.history import EVERY, HEAD_SHARE, spaced
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projected, Projector
from tests.handmade import chain, follow, seal
from tests.projector.conftest import TENANT, World

S = "sess_kept"
PAGE = 1_000  # events that a read brings at most


async def project(world: World) -> Projected:
    (seen,) = await world.store.look(TENANT, [S])
    projector = Projector(world.bus, world.store, metrics=Metrics())
    return await projector.project(Job(TENANT, S, max(world.last.values()), seen))


def shelf(world: World) -> Shelf:
    return Shelf(world.store, TENANT, S, SESSION.name, SESSION.version)


async def kept(world: World) -> list[int]:
    where = (TENANT, S, SESSION.name, SESSION.version)
    (listed,) = await world.store.parts(*where, ["@"])
    return [int(seq) for seq in (listed or b"").split()]


async def check(world: World, events: list[Event]) -> None:
    """Every snapshot that is kept holds what a fold of the events up to it gives."""
    at, state = dict[int, bytes](), SESSION.initial()
    for event in events:
        state = SESSION.apply(state, event)
        at[event.seq] = SESSION.encode(state)
    for seq in await kept(world):
        found = await shelf(world).near(seq)
        assert found is not None
        assert (found.seq, found.digest) == (seq, events[seq - 1].digest)
        assert SESSION.encode(join(SESSION, found.cut)) == at[seq]


def gaps(seqs: list[int], last: int) -> list[int]:
    return [b - a for a, b in zip([0, *seqs], [*seqs, last], strict=True)]


async def test_a_fold_of_a_long_log_leaves_snapshots_on_its_way(world: World) -> None:
    events = chain(5_200, session=S)
    await world.put(S, *events)
    await project(world)
    seqs = await kept(world)
    assert max(gaps(seqs, 5_200)) <= EVERY + PAGE
    assert min(gaps(seqs, 5_200)[:-1]) >= EVERY
    await check(world, events)


async def test_a_session_that_grows_keeps_them_as_near(world: World) -> None:
    events = chain(2_600, session=S)
    for start in range(0, 2_600, 130):
        await world.put(S, *events[start : start + 130])
        await project(world)
    seqs = await kept(world)
    assert max(gaps(seqs, 2_600)) <= EVERY + 130
    assert len(seqs) == 5
    await check(world, events)


async def test_a_burst_behind_a_snapshot_is_no_wider_gap(world: World) -> None:
    events = chain(3_400, session=S)
    await world.put(S, *events[:200])
    await project(world)
    await world.put(S, *events[200:])
    await project(world)
    assert max(gaps(await kept(world), 3_400)) <= EVERY + PAGE
    await check(world, events)


async def test_a_base_without_its_seal_leaves_nothing_and_a_sealed_one_is_kept(
    world: World,
) -> None:
    events = chain(2_400, session=S)
    await world.put(S, *events, part="base")
    await project(world)
    assert await shelf(world).load() == NOTHING
    await world.put(S, seal(events, session=S), part="base")
    await project(world)
    assert max(gaps(await kept(world), 2_400)) <= EVERY + PAGE
    await check(world, events)


async def test_what_lies_on_a_chain_that_lost_is_replaced_from_the_first_event_on(
    world: World,
) -> None:
    events = chain(3_200, session=S)
    await world.put(S, *events)
    await project(world)
    before = await kept(world)
    won = follow(
        events[1_499],
        type="session_resumed",
        payload={"writer": {"number": 2, "id": "b"}},
        session=S,
    )
    later = [won]
    while len(later) < 700:
        later.append(follow(later[-1], session=S))
    await world.put(S, *later)
    await project(world)
    right = [*events[:1_500], *later]
    seqs = await kept(world)
    assert max(before) > 2_200 >= max(seqs)
    assert max(gaps(seqs, 2_200)) <= EVERY + 2 * PAGE
    await check(world, right)


async def test_the_next_fold_after_redis_was_emptied_writes_all_of_them_again(
    world: World,
) -> None:
    events = chain(2_400, session=S)
    await world.put(S, *events)
    await project(world)
    before = await kept(world)
    await world.flush()
    await project(world)
    assert await kept(world) == before
    await check(world, events)


async def test_a_fold_from_the_first_event_over_a_good_snapshot_leaves_it_and_them(
    world: World,
) -> None:
    events = chain(2_400, session=S)
    await world.put(S, *events[:2_300])
    await project(world)
    before = await kept(world)
    await world.store.drop(f"flightlog:tenant:{{{TENANT}}}:row:{S}")
    await world.put(S, *events[2_300:])
    await project(world)
    assert await kept(world) == before
    last = (await shelf(world).load()).snapshot
    assert last is not None
    assert last.seq == 2_400
    await check(world, events)


@pytest.mark.parametrize(
    ("before", "seq", "head", "wanted"),
    [
        (0, EVERY - 1, 0, False),
        (0, EVERY, 0, True),
        (EVERY - 1, EVERY, 0, True),
        (EVERY, 2 * EVERY - 1, 0, False),
        (EVERY, 2 * EVERY + 7, HEAD_SHARE * EVERY, True),
        (EVERY, 2 * EVERY - 1, HEAD_SHARE * EVERY + 1, False),
        (2 * EVERY, 3 * EVERY, HEAD_SHARE * EVERY + 1, False),
        (3 * EVERY, 4 * EVERY, 2 * HEAD_SHARE * EVERY, True),
        (0, 4 * EVERY, 1 << 40, False),
    ],
)
def test_a_large_head_is_kept_less_often(before: int, seq: int, head: int, wanted: bool) -> None:
    assert spaced(before, seq, head=head) == wanted
