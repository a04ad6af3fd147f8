"""Sessions at any event of theirs: right whatever Redis says, and read from near by."""

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.asyncio as redis

from flightlog import Event, Log, LogCorrupt, NoSuchSession, SessionPurged, connect
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Page
from flightlog.snapshot import SESSION
from flightlog.wire import subject as names
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projector
from flightlog_recorder.embedded import Servers
from tests.handmade import chain, follow, seal, tombstone
from tests.recorder.recorded import write
from tests.scripted import TENANT

LONG = 3_300


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def put(log: Log, session: str, events: list[Event], *, part: str = "live") -> int:
    last = 0
    stored = await log.bus.last(
        log.bus.layout.stream_of(session), names.log_subject(TENANT, session, part)
    )
    last = stored.sequence if stored else 0
    return await write(log, session, events, part=part, last=last)


async def project(log: Log, session: str) -> None:
    assert log.store is not None
    (seen,) = await log.store.look(TENANT, [session])
    projector = Projector(log.bus, log.store, metrics=Metrics())
    await projector.project(Job(TENANT, session, 0, seen))


def states(events: list[Event]) -> list[bytes]:
    state = SESSION.initial()
    found = [SESSION.encode(state)]
    for event in events:
        state = SESSION.apply(state, event)
        found.append(SESSION.encode(state))
    return found


def winner(last: Event, count: int) -> list[Event]:
    """A second writer's events behind `last`."""
    said = {"writer": {"number": 2, "id": "b"}}
    made = [follow(last, type="session_resumed", payload=said, session=last.session_id)]
    while len(made) < count:
        made.append(follow(made[-1], session=last.session_id))
    return made


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Generator[list[int]]:
    """How many messages each page brought."""
    pages: list[int] = []
    page = NatsBus.page

    async def counting(self: NatsBus, *args: Any, **options: Any) -> Page:
        found = await page(self, *args, **options)
        pages.append(len(found.messages))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(NatsBus, "page", counting)
        yield pages


@pytest.fixture
async def long(log: Log) -> tuple[str, list[Event]]:
    """A session with a history, its tail behind the last snapshot."""
    session = names.mint()
    events = chain(LONG, session=session)
    await put(log, session, events[:3_200])
    await project(log, session)
    await put(log, session, events[3_200:])
    return session, events


ANY = [0, 1, 499, 500, 999, 1_000, 1_001, 1_700, 3_199, 3_200, 3_201, LONG]


async def test_a_state_at_any_event_is_that_of_a_full_fold_and_reads_a_page_or_two(
    log: Log, long: tuple[str, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, events = long
    right = states(events)
    for at in ANY:
        with counted(monkeypatch) as pages:
            folded = await log.fold(session, at=at)
        assert SESSION.encode(folded.state) == right[at]
        assert (folded.seq, folded.digest) == (LONG, events[-1].digest)
        used = folded.used.seq if folded.used else 0
        assert used <= at
        assert folded.tail == at - used or at >= 3_200
        assert sum(pages) <= 1_000 + 2 * (LONG - 3_200)


async def test_events_in_the_middle_are_read_from_near_by(
    log: Log, long: tuple[str, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, events = long
    for after in ANY:
        for until in (after + 1, after + 30):
            with counted(monkeypatch) as pages:
                found = [e.digest async for e in log.read(session, after=after, until=until)]
            assert found == [e.digest for e in events[after:until]]
            assert sum(pages) <= 1_100 + 2 * (LONG - 3_200)
    with counted(monkeypatch) as pages:
        found = [e.digest async for e in log.read(session, after=3_000)]
    assert found == [e.digest for e in events[3_000:]]
    assert sum(pages) <= LONG - 2_000


@pytest.mark.parametrize("projected", [True, False])
async def test_what_a_later_writer_took_back_is_in_no_past(log: Log, projected: bool) -> None:
    session = names.mint()
    events = chain(2_400, session=session)
    await put(log, session, events)
    await project(log, session)
    won = winner(events[1_299], 300)
    await put(log, session, won)
    if projected:
        await project(log, session)
    right = [*events[:1_300], *won]
    for at in (1_299, 1_300, 1_301, 1_500):
        assert SESSION.encode(await log.state(session, at=at)) == states(right)[at]
        read = {e.seq: e.digest async for e in log.read(session, after=at - 2, until=at)}
        assert read == {e.seq: e.digest for e in right[at - 2 : at]}
    read = {e.seq: e.digest async for e in log.read(session, after=1_400) if e.seq <= 1_600}
    assert read == {e.seq: e.digest for e in right[1_400:]}


async def test_a_snapshot_of_a_chain_that_lost_is_not_used_though_it_is_still_there(
    log: Log, long: tuple[str, list[Event]], redis_url: str
) -> None:
    session, events = long
    key = f"flightlog:session:{{{TENANT}.{session}}}:snapshots"
    async with redis.Redis.from_url(redis_url) as client:
        before: dict[Any, Any] = await client.hgetall(key)
        won = winner(events[1_299], 600)
        await put(log, session, won)
        await project(log, session)
        stays = {name: value for name, value in before.items() if b"@" in name}
        await client.hset(key, mapping=stays)
    right = [*events[:1_300], *won]
    for at in (1_200, 1_290, 1_600, 1_850):
        assert SESSION.encode(await log.state(session, at=at)) == states(right)[at]
        read = {e.seq: e.digest async for e in log.read(session, after=at - 2, until=at)}
        assert read == {e.seq: e.digest for e in right[at - 2 : at]}


async def test_a_fork_reads_what_it_copies_once_and_no_more_of_a_projected_source(
    log: Log, long: tuple[str, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, events = long
    for at in (0, 1, 700, 3_200, None):
        with counted(monkeypatch) as pages:
            made = await log.fork(session, at=at)
        copied = LONG if at is None else at
        assert sum(pages) <= copied + 1 + LONG - 3_200 + 1
        last = [event async for event in log.read(made)][-1]
        assert last.seq == copied + 1
        assert last.payload.get("digest") == (events[copied - 1].digest if copied else None)


@pytest.mark.parametrize("projected", [True, False])
async def test_a_fork_copies_what_a_later_writer_wrote_and_nothing_that_he_took_back(
    log: Log, projected: bool
) -> None:
    session = names.mint()
    events = chain(2_400, session=session)  # the branch is seen a page later
    await put(log, session, events)
    won = winner(events[1_199], 300)
    await put(log, session, won)
    if projected:
        await project(log, session)
    right = [*events[:1_200], *won]
    for at in (1_100, 1_200, 1_201, 1_450, None):
        made = [event async for event in log.read(await log.fork(session, at=at))]
        assert [e.raw for e in made[:-1]] == [e.raw for e in right[:at]]
        assert made[-1].payload["digest"] == right[:at][-1].digest


async def test_a_past_before_a_damage_is_there_and_one_behind_it_is_not(log: Log) -> None:
    session = names.mint()
    events = chain(2_000, session=session)
    await put(log, session, events[:1_400])
    await project(log, session)
    await put(log, session, [*events[1_400:1_500], *events[1_501:]])
    assert SESSION.encode(await log.state(session, at=900)) == states(events)[900]
    assert SESSION.encode(await log.state(session, at=1_500)) == states(events)[1_500]
    with pytest.raises(LogCorrupt):
        await log.state(session, at=1_600)
    assert [e.seq async for e in log.read(session, after=1_300, until=1_302)] == [1_301, 1_302]
    seen = list[int]()
    with pytest.raises(LogCorrupt):
        async for event in log.read(session, after=1_398):
            seen.append(event.seq)
    assert seen == [1_399, 1_400, *range(1_401, 1_501)]


async def test_a_base_has_a_past_too(log: Log) -> None:
    session = names.mint()
    events = chain(2_200, session=session)
    await put(log, session, events[:2_000], part="base")
    await log.bus.last("FLIGHTLOG_0", names.log_subject(TENANT, session, "base"))
    await put(log, session, [seal(events[:2_000], session=session)], part="base")  # type: ignore[list-item]
    await put(log, session, events[2_000:])
    await project(log, session)
    right = states(events)
    for at in (700, 1_999, 2_000, 2_001, 2_100):
        assert SESSION.encode(await log.state(session, at=at)) == right[at]
        assert [e.digest async for e in log.read(session, after=at - 1, until=at + 1)] == [
            e.digest for e in events[at - 1 : at + 1]
        ]


async def test_without_redis_the_past_is_read_from_the_first_event(
    long: tuple[str, list[Event]], servers: Servers
) -> None:
    session, events = long
    async with connect(nats=servers.nats_url, tenant=TENANT) as bare:
        assert SESSION.encode(await bare.state(session, at=1_700)) == states(events)[1_700]
        assert [e.seq async for e in bare.read(session, after=9, until=12)] == [10, 11, 12]


async def test_what_is_purged_or_never_was_has_no_past(
    log: Log, long: tuple[str, list[Event]]
) -> None:
    session, _ = long
    await put(log, session, [tombstone(session=session)])  # type: ignore[list-item]
    with pytest.raises(SessionPurged):
        await log.state(session, at=1_700)
    with pytest.raises(NoSuchSession):
        await log.state(names.mint(), at=1)
