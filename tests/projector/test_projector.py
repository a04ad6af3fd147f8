"""One session's projection: snapshot, then row; and what becomes of logs that are none."""

from typing import Any

import pytest

from flightlog import snapshot as snapshots
from flightlog.cache.catalog import Filter
from flightlog.cache.shelf import Shelf
from flightlog.event import Event
from flightlog.reading.reader import fold
from flightlog.snapshot import SESSION
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projected, Projector, snapshot_due
from tests.handmade import chain, follow, seal, takeover, tombstone
from tests.projector.conftest import TENANT, World

S = "sess_handmade"


async def project(world: World, session: str = S, *, at_least: int = 0, **more: Any) -> Projected:
    projector = Projector(world.bus, world.store, metrics=Metrics(), **more)
    (seen,) = await world.store.look(TENANT, [session])
    return await projector.project(Job(TENANT, session, at_least, seen))


async def stored(world: World, session: str = S, name: str = "session") -> Any:
    version = SESSION.version if name == "session" else 1
    return (await Shelf(world.store, TENANT, session, name, version).load()).snapshot


async def test_the_row_says_what_the_log_says(world: World) -> None:
    events = chain(5)
    last = await world.put(S, *events)
    done = await project(world, at_least=last)
    row = await world.row(S)
    assert row is not None
    assert (done.covered, row.read_to, row.sequence) == (last, last, last)
    assert (row.seq, row.first_ts, row.counts) == (5, events[0].ts, {"note": 5})
    assert await world.listed() == {S}


async def test_a_snapshot_is_written_after_a_hundred_events_and_folds_on_to_the_same_state(
    world: World,
) -> None:
    events = chain(230)
    await world.put(S, *events[:99])
    await project(world)
    assert await stored(world) is None
    await world.put(S, *events[99:150])
    await project(world)
    first = await stored(world)
    assert first.seq == 150
    last = await world.put(S, *events[150:])
    await project(world, at_least=last)
    assert (await stored(world)).seq == 150
    row = await world.row(S)
    assert row is not None
    assert (row.seq, row.snapshot_seq, row.counts) == (230, 150, {"note": 230})
    by_tail = await fold(world.bus, TENANT, S, SESSION, snapshot=first)
    from_zero = await fold(world.bus, TENANT, S, SESSION)
    assert by_tail.tail == 80
    assert SESSION.encode(by_tail.state) == SESSION.encode(from_zero.state)


@pytest.mark.parametrize(
    ("tail", "age", "resting", "due"),
    [
        (0, 999.0, True, False),
        (1, 59.0, False, False),
        (99, 0.0, False, False),
        (100, 0.0, False, True),
        (1, 60.0, False, True),
        (1, 0.0, True, True),
    ],
)
def test_a_snapshot_is_due_after_events_or_time_or_at_rest(
    tail: int, age: float, resting: bool, due: bool
) -> None:
    assert snapshot_due(tail=tail, age=age, resting=resting) is due


async def test_a_snapshot_that_does_not_verify_is_replaced(world: World) -> None:
    last = await world.put(S, *chain(120))
    await project(world, at_least=last)
    good = await world.store.snapshot(TENANT, S, "session", SESSION.version)
    assert good is not None
    for garbage in (b"", b"\xff\xfe", good[:-3], good.replace(b'"seq":120', b'"seq":121')):
        (seen,) = await world.store.look(TENANT, [S])
        held = await world.store.snapshot(TENANT, S, "session", SESSION.version)
        header = snapshots.header(held or b"")
        assert await world.store.save_snapshot(
            TENANT, S, "session", SESSION.version, garbage, replacing=header
        )
        projector = Projector(world.bus, world.store, metrics=Metrics())
        done = await projector.project(Job(TENANT, S, last, seen))
        assert done.aside is None
        assert await world.store.snapshot(TENANT, S, "session", SESSION.version) == good


async def test_strays_are_counted_once_each_over_many_folds(world: World) -> None:
    events = [takeover(None, 1)]
    events += [follow(events[-1])]
    zombie = follow(events[-1], payload="zombie")
    events += [takeover(events[-1], 2)]
    await world.put(S, *events, zombie)
    await project(world)
    more: list[Event] = []
    for n in range(130):
        more.append(follow(more[-1] if more else events[-1], payload=n))
    await world.put(S, *more)
    await project(world)
    assert await stored(world) is not None
    await world.put(S, zombie, follow(more[-1]))
    await project(world)
    row = await world.row(S)
    assert row is not None
    assert (row.strays, row.seq) == (2, 134)


async def test_a_stray_at_the_end_is_covered_though_it_is_no_event(world: World) -> None:
    events = [takeover(None, 1)]
    zombie = follow(events[-1], payload="zombie")
    last = await world.put(S, *events, takeover(events[-1], 2), zombie)
    done = await project(world, at_least=last)
    row = await world.row(S)
    assert row is not None
    assert (done.covered, row.read_to, row.sequence) == (last, last, last - 1)


async def test_a_base_without_its_seal_is_no_session(world: World) -> None:
    events = chain(3)
    await world.put(S, *events, part="base")
    done = await project(world)
    assert (done.wrote, done.aside) == (False, None)
    assert await world.row(S) is None
    last = await world.put(S, seal(events), part="base")
    await project(world, at_least=last)
    row = await world.row(S)
    assert row is not None
    assert (row.seq, row.read_to, row.sequence) == (3, last, last - 1)


async def test_a_purged_session_leaves_the_catalog_and_stays_away(world: World) -> None:
    await world.put(S, *chain(120))
    await project(world)
    (before,) = await world.store.look(TENANT, [S])
    last = await world.put(S, tombstone())
    assert (await project(world, at_least=last)).covered == last
    assert await world.listed() == set()
    assert await stored(world) is None
    late = Projector(world.bus, world.store, metrics=Metrics())
    await late.project(Job(TENANT, S, last - 1, before))
    assert await world.row(S) is None
    assert await stored(world) is None


async def test_a_notice_of_a_message_that_is_gone_is_covered(world: World) -> None:
    last = await world.put(S, *chain(3))
    subject = f"flightlog.v1.*.{TENANT}.{S}.live"
    await world.bus.purge(world.bus.layout.stream_of(S), subject, below=last + 1)
    assert (await project(world, at_least=last)).covered == last
    assert await world.row(S) is None


async def test_a_damaged_log_is_set_aside_with_its_reason_and_comes_back_when_mended(
    world: World,
) -> None:
    events = chain(4)
    last = await world.put(S, *events[:2], events[3])
    done = await project(world, at_least=last)
    row = await world.row(S)
    assert row is not None
    assert done.covered == last
    assert "fork it at 2" in (row.error or "")
    assert await world.listed(Filter(damaged=True)) == {S}
    last = await world.put(S, *events[2:])
    assert (await project(world, at_least=last)).aside is None
    assert await world.listed(Filter(damaged=True)) == set()


class Counting:
    """A user's projection."""

    name = "counting"
    version = 1

    def initial(self) -> int:
        return 0

    def apply(self, state: int, event: Event) -> int:
        if event.seq == 7:
            self.at_seven()
        return state + 1

    def at_seven(self) -> None:
        pass

    def encode(self, state: int) -> bytes:
        return str(state).encode()

    def decode(self, raw: bytes) -> int:
        return int(raw)


class Broken(Counting):
    """A user's projection that cannot bear the seventh event."""

    name = "broken"

    def at_seven(self) -> None:
        raise RuntimeError("payload: secret-7")


async def test_users_projections_get_snapshots_of_their_own(world: World) -> None:
    await world.put(S, *chain(120))
    await project(world, projections=[Counting()])
    assert (await stored(world, name="counting")).cut.state == b"120"


async def test_a_users_projection_that_raises_costs_only_its_own_snapshot(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    last = await world.put(S, *chain(120))
    done = await project(world, at_least=last, projections=[Broken(), Counting()])
    assert (done.aside, done.covered) == (None, last)
    assert await stored(world, name="broken") is None
    assert (await stored(world, name="counting")).seq == 120
    assert "RuntimeError" in caplog.text
    assert "secret-7" not in caplog.text
