"""The projector: a backlog with one and with two replicas, its bytes, its memory, its price."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from statistics import median

import redis.asyncio as redis
from msgspec import Struct

from flightlog import Session
from flightlog.event import Event
from flightlog.wire import subject as names
from flightlog_recorder.bench import bed as beds
from flightlog_recorder.bench import replica, row, script
from flightlog_recorder.bench.bed import Bed, Sizes
from flightlog_recorder.bench.row import Row

FLAT = 1.2  # target, at most: memory with four times the sessions
MORE_SESSIONS = 4
_SEEDERS = 4  # sessions that are seeded at once
_FOLDS = "flightlog_projector_fold_seconds_count"


class Drained(Struct, frozen=True):
    """What it took to project one backlog."""

    sessions: int
    events: int
    seconds: float
    folds: list[float]
    log_bytes: int
    redis_bytes: int
    memory: float

    @property
    def rate(self) -> float:
        """Events per second, all replicas together."""
        return self.events / self.seconds


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """All of the projector's rows, each backlog on servers of its own."""
    sizes = bed.sizes
    template = await _template(bed)
    one = await _drain(sizes, template, sessions=sizes.backlog_sessions, replicas=1)
    two = await _drain(sizes, template, sessions=sizes.backlog_sessions, replicas=2)
    for each in (*_rates(one, two), *_folds(one, two), _bytes(one)):
        yield each
    short = template[: len(template) // MORE_SESSIONS]
    many = sizes.backlog_sessions * MORE_SESSIONS
    yield _memory(one, await _drain(sizes, short, sessions=many, replicas=1))
    yield await _price(bed)


def _rates(one: Drained, two: Drained) -> list[Row]:
    name = f"projector, {one.events:,} events over {one.sessions:,} sessions"
    return [
        Row(name=name, unit="events/s", measured=one.rate),
        Row(
            name="the same with 2 replicas",
            unit="events/s",
            measured=two.rate,
            floor=one.rate,
            floor_name="1 replica",
            ratio=two.rate / one.rate,
            note="on one machine they share its cores with NATS and Redis",
        ),
    ]


def _folds(one: Drained, two: Drained) -> list[Row]:
    return [
        Row(
            name=f"folds per process, {count} replica{'s' * (count > 1)}",
            unit="folds",
            measured=max(found.folds),
            floor=found.sessions / count,
            floor_name="one per session",
            ratio=max(found.folds) / (found.sessions / count),
            at_most=True,
        )
        for count, found in ((1, one), (2, two))
    ]


def _bytes(found: Drained) -> Row:
    return Row(
        name="written to Redis per event",
        unit="bytes",
        measured=found.redis_bytes / found.events,
        floor=found.log_bytes / found.events,
        floor_name="the event in the log",
        ratio=found.redis_bytes / found.log_bytes,
    )


def _memory(few: Drained, many: Drained) -> Row:
    return Row(
        name=f"projector's peak memory, {many.sessions:,} sessions",
        unit="MiB",
        measured=many.memory,
        floor=few.memory,
        floor_name=f"{few.sessions:,} sessions, as many events",
        ratio=many.memory / few.memory,
        target=FLAT,
        at_most=True,
    )


async def _template(bed: Bed) -> list[Event]:
    """About a hundred events of a real conversation."""
    async with bed.log.session() as s:
        await script.converse(s, 12)
    return [event async for event in bed.log.read(s.id)]


async def _drain(
    sizes: Sizes, template: Sequence[Event], *, sessions: int, replicas: int
) -> Drained:
    """Project a backlog that piled up while no projector ran."""
    async with beds.made(sizes) as bed:
        async with replica.running(bed) as [first]:
            await first.ready()
        log_bytes = await _seed(bed, template, sessions)
        total, before = await replica.waiting(bed), await _written(bed)
        async with replica.running(bed, replicas) as found:
            took = await replica.drained(bed, total)
            return Drained(
                sessions=sessions,
                events=total,
                seconds=took,
                folds=[await each.metric(_FOLDS) for each in found],
                log_bytes=log_bytes,
                redis_bytes=await _written(bed) - before,
                memory=max(each.peak_memory() for each in found),
            )


async def _seed(bed: Bed, template: Sequence[Event], sessions: int) -> int:
    """Store copies of the template, each under a new id; their bytes."""

    async def some(count: int) -> int:
        stored = 0
        for _ in range(count):
            session = names.mint()
            copy = script.clone(template, session)
            await script.store(bed.log.bus, bed.log.tenant, session, copy, 0)
            stored += sum(len(event.body) for event in copy)
        return stored

    shares = [sessions // _SEEDERS + (n < sessions % _SEEDERS) for n in range(_SEEDERS)]
    return sum(await asyncio.gather(*(some(share) for share in shares)))


async def _written(bed: Bed) -> int:
    """Bytes that Redis has been sent since it started."""
    client = redis.Redis.from_url(bed.servers.redis_url)
    found = await client.info("stats")
    await client.aclose()
    return int(found["total_net_input_bytes"])


async def _price(bed: Bed) -> Row:
    """Appends with a projector beside, by those without: its acks, and its share of the cores."""
    sizes = bed.sizes
    without: list[float] = []
    beside: list[float] = []
    for _ in range(3):
        without.append(await row.seconds(lambda: _append(bed)))
        async with replica.running(bed) as [found]:
            await found.ready()
            beside.append(await row.seconds(lambda: _append(bed)))
    count = sizes.callers * sizes.per_caller
    return Row(
        name=f"{sizes.callers} sessions append, a projector beside",
        unit="events/s",
        measured=count / median(beside),
        floor=count / median(without),
        floor_name="no projector",
        ratio=median(without) / median(beside),
        note="its acks, and its share of this machine's cores",
    )


async def _append(bed: Bed) -> None:
    async def one(s: Session) -> None:
        for n in range(bed.sizes.per_caller):
            await s.append("checkpoint", {"data": n})

    async def session() -> None:
        async with bed.log.session() as s:
            await one(s)

    await asyncio.gather(*(session() for _ in range(bed.sizes.callers)))
