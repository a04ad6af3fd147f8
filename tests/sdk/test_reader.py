"""Reading a session on a real server: what it is, where it ends, and what is damage."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from flightlog.bus.nats_bus import PAGE_BYTES, NatsBus, connect_bus
from flightlog.bus.protocol import Page
from flightlog.cache.cut import Cut
from flightlog.errors import BusUnavailable, LogCorrupt
from flightlog.event import Control, Event, digest_of
from flightlog.reading import once as reading
from flightlog.reading.chain import Part
from flightlog.reading.reader import Folded, fold, read
from flightlog.snapshot import Snapshot
from flightlog.wire import subject
from tests.handmade import SESSION, chain, follow, seal, takeover, tombstone

TENANT = "acme"
Stored = Event | Control | bytes
Digests = tuple[str, ...]


class AllDigests:
    """A projection that remembers every event it was given, so that nothing goes unnoticed."""

    name = "digests"
    version = 1

    def initial(self) -> Digests:
        return ()

    def apply(self, state: Digests, event: Event) -> Digests:
        return (*state, event.digest)

    def encode(self, state: Digests) -> bytes:
        return ",".join(state).encode()

    def decode(self, raw: bytes) -> Digests:
        return tuple(raw.decode().split(",")) if raw else ()


class Log:
    """One session's subjects on a server, written without expectations."""

    def __init__(self, bus: NatsBus) -> None:
        self.bus = bus
        self.stream = bus.layout.stream_of(SESSION)

    async def put(self, *messages: Stored, part: Part = "live") -> int:
        """Store messages as they are; returns the last one's stream sequence."""
        client = await self.bus.client()
        to = subject.log_subject(TENANT, SESSION, part)
        *bodies, last = [each if isinstance(each, bytes) else each.body for each in messages]
        for body in bodies:
            await client.publish(to, body)
        reply = await client.request(to, last, timeout=10)
        return int(msgspec.json.decode(reply.data)["seq"])

    async def fold(
        self, *, snapshot: Snapshot | None = None, at_least: int = 0, until: int | None = None
    ) -> Folded[Digests]:
        return await fold(
            self.bus,
            TENANT,
            SESSION,
            AllDigests(),
            snapshot=snapshot,
            at_least=at_least,
            until=until,
        )

    async def read(self, *, after: int = 0, until: int | None = None) -> list[Event]:
        found = read(self.bus, TENANT, SESSION, after=after, until=until)
        return [event async for event in found]


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with await connect_bus(nats_url) as bus:
        yield Log(bus)


def taken(folded: Folded[Digests]) -> Snapshot:
    """The snapshot that a projector would take here."""
    return Snapshot(
        projection="digests",
        version=1,
        schema=1,
        seq=folded.seq,
        sequence=folded.sequence,
        part=folded.part,
        read_to=folded.read_to,
        digest=str(folded.digest),
        writers=folded.writers,
        cut=Cut(AllDigests().encode(folded.state)),
    )


def digests(events: Sequence[Event]) -> Digests:
    return tuple(each.digest for each in events)


def owned(length: int) -> list[Event]:
    events = [takeover(None, 1)]
    while len(events) < length:
        events.append(follow(events[-1]))
    return events


# --- what a session is ---


async def test_a_log_without_a_message_is_absent(log: Log) -> None:
    folded = await log.fold()
    assert (folded.presence, folded.seq, folded.last_live) == ("absent", 0, 0)
    assert await log.read() == []


async def test_live_events_alone_are_a_session(log: Log) -> None:
    events = owned(3)
    last = await log.put(*events)
    folded = await log.fold()
    assert folded.state == digests(events)
    assert (folded.presence, folded.seq, folded.part) == ("present", 3, "live")
    assert folded.last_live == folded.read_to == folded.sequence == last


async def test_a_sealed_base_is_read_before_the_live_events(log: Log) -> None:
    events = owned(4)
    end = await log.put(*events[:3], seal(events[:3]), part="base")
    sealed = await log.fold()
    assert (sealed.presence, sealed.seq, sealed.part) == ("present", 3, "base")
    assert (sealed.read_to, sealed.sequence, sealed.last_live) == (end, end - 1, 0)
    await log.put(events[3])
    assert (await log.fold()).state == digests(events)
    assert digests(await log.read()) == digests(events)


async def test_a_base_without_its_seal_is_no_session_yet(log: Log) -> None:
    events = owned(3)
    await log.put(*events, part="base")
    assert (await log.fold()).presence == "unsealed"
    await log.put(follow(events[-1]))
    assert (await log.fold()).seq == 3
    await log.put(seal(events), part="base")
    assert (await log.fold()).seq == 4


async def test_an_abandoned_base_never_becomes_a_session(log: Log) -> None:
    await log.put(*owned(3), tombstone(), part="base")
    assert (await log.fold()).presence == "unsealed"
    await log.bus.purge(log.stream, subject.log_subject(TENANT, SESSION, "base"), below=4)
    assert (await log.fold()).presence == "unsealed"


@pytest.mark.parametrize("purged", [False, True], ids=["tombstone only", "purge done"])
@pytest.mark.parametrize("with_base", [False, True])
async def test_a_tombstone_on_live_is_a_purged_session(
    log: Log, with_base: bool, purged: bool
) -> None:
    events = owned(6)
    if with_base:
        await log.put(*events[:3], seal(events[:3]), part="base")
    end = await log.put(*events[3 if with_base else 0 :], tombstone())
    if purged:
        for part in ("live", "base"):
            to = subject.log_subject(TENANT, SESSION, part)
            await log.bus.purge(log.stream, to, below=end)
    folded = await log.fold()
    assert folded.presence == "purged"
    assert folded.tombstone is not None
    assert folded.last_live == end


@pytest.mark.parametrize("said", [b'"nonsense"', b"null", b'{"count":2,"digest":"ab"}', b"[]"])
async def test_a_seal_that_says_otherwise_is_damage(log: Log, said: bytes) -> None:
    events = owned(3)
    right = seal(events)
    at = right.index(b'"payload":') + len(b'"payload":')
    await log.put(*events, right[:at] + said + b"}", part="base")
    await log.put(follow(events[-1]))
    with pytest.raises(LogCorrupt, match=f"session {SESSION} is damaged after seq 3"):
        await log.fold()


async def test_a_base_that_lost_an_event_is_damage(log: Log) -> None:
    events = owned(4)
    await log.put(events[0], *events[2:], seal(events), part="base")
    with pytest.raises(LogCorrupt) as corrupt:
        await log.fold()
    assert corrupt.value.seq == 1


async def test_strays_are_reported_and_the_last_live_message_counts_them(log: Log) -> None:
    events = owned(3)
    late = follow(events[0], payload="zombie")
    end = await log.put(*events, b"garbage", late, follow(None, session="sess_other"))
    folded = await log.fold()
    assert folded.state == digests(events)
    assert [each.sequence for each in folded.strays] == [end - 2, end - 1, end]
    assert (folded.read_to, folded.last_live, folded.sequence) == (end, end, end - 3)


# --- pages ---


async def test_a_log_of_many_pages_is_read_in_full_and_in_order(log: Log) -> None:
    events = chain(2_600)
    base = events[:1_300]
    await log.put(*base, seal(base), part="base")
    await log.put(*events[1_300:])
    assert digests(await log.read()) == digests(events)
    assert (await log.fold()).state == digests(events)


@pytest.mark.parametrize(
    ("after", "until", "wanted"),
    [
        (0, None, [1, 2, 3, 4, 5, 6]),
        (2, None, [3, 4, 5, 6]),
        (0, 4, [1, 2, 3, 4]),
        (2, 4, [3, 4]),
        (4, 2, []),
        (6, None, []),
        (99, None, []),
        (0, 0, []),
    ],
)
async def test_a_read_is_bounded_by_seq_on_both_sides(
    log: Log, after: int, until: int | None, wanted: list[int]
) -> None:
    events = owned(6)
    await log.put(*events[:3], seal(events[:3]), part="base")
    await log.put(*events[3:])
    assert [each.seq for each in await log.read(after=after, until=until)] == wanted


async def test_a_fold_until_a_seq_is_the_state_at_that_seq(log: Log) -> None:
    events = owned(5)
    await log.put(*events)
    for seq in range(1, 6):
        assert (await log.fold(until=seq)).state == digests(events[:seq])


async def test_memory_is_bounded_by_a_page_however_long_the_log(log: Log) -> None:
    events = chain(1_600, payload="x" * 10_000)
    for at in range(0, len(events), 100):
        await log.put(*events[at : at + 100])
    size = sum(len(each.body) for each in events)
    count = len(events)
    del events
    tracemalloc.start()
    found = 0
    async for _ in read(log.bus, TENANT, SESSION):
        found += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == count
    assert size > 12 * PAGE_BYTES
    assert peak < 6 * PAGE_BYTES


# --- snapshots ---


async def test_from_a_fitting_snapshot_only_the_tail_is_read(log: Log) -> None:
    events = owned(5)
    await log.put(*events[:3])
    snapshot = taken(await log.fold())
    last = await log.put(*events[3:])
    folded = await log.fold(snapshot=snapshot)
    assert folded.state == digests(events)
    assert (folded.tail, folded.used) == (2, snapshot)
    assert (folded.head, folded.last_live) == ((await log.fold()).head, last)


async def test_a_snapshot_of_everything_has_an_empty_tail(log: Log) -> None:
    await log.put(*owned(3))
    snapshot = taken(await log.fold())
    folded = await log.fold(snapshot=snapshot)
    assert (folded.tail, folded.used, folded.seq) == (0, snapshot, 3)
    assert folded.last_live == snapshot.sequence


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
async def test_a_snapshot_in_base_or_live_gives_what_the_whole_log_gives(
    log: Log, cut: int
) -> None:
    events = owned(6)
    base, live = events[:4], events[4:]
    await log.put(*base, seal(base), part="base")
    await log.put(*live)
    whole = await log.fold()
    part: Part = "base" if cut <= 4 else "live"
    at = cut if cut <= 4 else cut + 1  # the seal lies between
    snapshot = Snapshot(
        projection="digests",
        version=1,
        schema=1,
        seq=cut,
        sequence=at,
        part=part,
        read_to=at,
        digest=events[cut - 1].digest,
        writers=((1, 1),),
        cut=Cut(AllDigests().encode(digests(events[:cut]))),
    )
    folded = await log.fold(snapshot=snapshot)
    assert (folded.state, folded.head, folded.presence) == (whole.state, whole.head, "present")
    assert folded.used == snapshot
    assert folded.tail == 6 - cut


@pytest.mark.parametrize("at_seq", [2, 4])
async def test_a_right_snapshot_over_another_event_means_that_the_log_lost_events(
    log: Log, at_seq: int
) -> None:
    events = owned(5)
    await log.put(*events)
    snapshot = taken(await log.fold())
    other = digest_of(b"what the log once held")
    wrong = msgspec.structs.replace(snapshot, seq=at_seq, sequence=at_seq, digest=other)
    with pytest.raises(LogCorrupt) as corrupt:
        await log.fold(snapshot=wrong)
    assert (corrupt.value.session, corrupt.value.seq) == (SESSION, at_seq)
    assert other in corrupt.value.expected
    assert events[at_seq - 1].digest in corrupt.value.found


async def test_a_snapshot_ahead_of_a_log_that_was_rolled_back_means_lost_events(log: Log) -> None:
    events = owned(3)
    await log.put(*events)
    snapshot = taken(await log.fold())
    ahead = msgspec.structs.replace(
        snapshot, seq=7, sequence=snapshot.sequence + 4, digest="ab" * 32
    )
    with pytest.raises(LogCorrupt, match=r"expected digest abab.*, found nothing") as corrupt:
        await log.fold(snapshot=ahead)
    assert corrupt.value.seq == 7


async def test_a_snapshot_on_a_losing_chain_is_no_damage_but_left_aside(log: Log) -> None:
    start = owned(2)
    zombie = [late := follow(start[-1]), follow(late)]
    await log.put(*start, *zombie)
    snapshot = taken(await log.fold())
    new = takeover(start[-1], 2)
    await log.put(new)
    folded = await log.fold(snapshot=snapshot)
    assert folded.state == digests([*start, new])
    assert folded.used is None
    assert folded.writers == ((1, 1), (3, 2))
    assert len(folded.strays) == 2


async def test_strays_from_before_the_snapshot_do_not_make_a_tail_damaged(log: Log) -> None:
    start = owned(2)
    new = takeover(start[-1], 2)
    zombie = follow(start[-1])
    await log.put(*start, new, zombie)
    tail = follow(new)
    await log.put(tail)
    snapshot = taken(await log.fold())
    stray = [second := follow(zombie), third := follow(second), follow(third)]
    await log.put(*stray, last := follow(tail))
    folded = await log.fold(snapshot=snapshot)
    assert folded.state == digests([*start, new, tail, last])


@pytest.mark.parametrize("purged", [False, True])
async def test_a_session_purged_behind_a_snapshot_is_purged_not_damaged(
    log: Log, purged: bool
) -> None:
    await log.put(*owned(3))
    snapshot = taken(await log.fold())
    end = await log.put(tombstone())
    if purged:
        await log.bus.purge(log.stream, subject.log_subject(TENANT, SESSION, "live"), below=end)
    assert (await log.fold(snapshot=snapshot)).presence == "purged"


# --- branches ---


async def test_a_later_takeover_starts_the_fold_again_from_before_the_branch(log: Log) -> None:
    start = owned(3)
    zombie = [late := follow(start[-1]), follow(late)]
    new = [second := takeover(start[-1], 2), follow(second)]
    await log.put(*start, *zombie, *new)
    folded = await log.fold()
    assert folded.state == digests([*start, *new])
    assert [each.seq for each in folded.strays] == [4, 5]


async def test_a_read_over_a_branch_yields_no_event_twice(log: Log) -> None:
    start = chain(1_500)
    zombie = follow(start[-1], payload="late")
    new = [second := takeover(start[-1], 2), follow(second)]
    await log.put(*start, zombie, *new)
    assert digests(await log.read()) == digests([*start, *new])


# --- damage ---


@pytest.mark.parametrize("edited", [False, True], ids=["lost", "edited"])
async def test_damage_is_named_with_session_position_and_both_digests(
    log: Log, edited: bool
) -> None:
    events = owned(6)
    middle = [events[3].body.replace(b'"harness_version":"1"', b'"harness_version":"6"')]
    await log.put(*events[:3], *(middle if edited else []), *events[4:])
    good = 4 if edited else 3
    last_good = digest_of(middle[0]) if edited else events[2].digest
    with pytest.raises(
        LogCorrupt, match=f"session {SESSION} is damaged after seq {good}"
    ) as folding:
        await log.fold()
    assert last_good in folding.value.expected
    assert events[3].digest in folding.value.found
    events_read = read(log.bus, TENANT, SESSION)
    assert [(await anext(events_read)).seq for _ in range(good)] == list(range(1, good + 1))
    with pytest.raises(LogCorrupt) as reading_it:
        await anext(events_read)
    assert str(reading_it.value) == str(folding.value)


async def test_what_lies_before_the_damage_can_be_read_and_folded_for_the_cure(log: Log) -> None:
    events = owned(6)
    await log.put(*events[:3], *events[4:])
    assert digests(await log.read(until=3)) == digests(events[:3])
    assert (await log.fold(until=3)).state == digests(events[:3])
    with pytest.raises(LogCorrupt):
        await log.read(until=4)
    with pytest.raises(LogCorrupt):
        await log.fold(until=4)


async def test_damage_in_the_tail_of_a_snapshot_is_found_too(log: Log) -> None:
    events = owned(6)
    await log.put(*events[:3])
    snapshot = taken(await log.fold())
    await log.put(*events[4:])
    with pytest.raises(LogCorrupt, match="damaged after seq 3"):
        await log.fold(snapshot=snapshot)


async def test_damage_behind_a_branch_is_damage_and_not_an_endless_loop(log: Log) -> None:
    start = owned(3)
    zombie = follow(start[-1])
    new = chain_after(takeover(start[-1], 2), 3)
    await log.put(*start, zombie, new[0], *new[2:])
    with pytest.raises(LogCorrupt, match="damaged after seq 4"):
        await log.fold()


def chain_after(first: Event, length: int) -> list[Event]:
    events = [first]
    while len(events) <= length:
        events.append(follow(events[-1]))
    return events


# --- lag ---


class Lagging(NatsBus):
    """A bus whose direct reads see only what a lagging replica would, until it has caught up.

    `hides` are stream sequences that the first `looks` pages do not show.
    """

    hides: frozenset[int] = frozenset()
    looks = 0

    async def page(self, stream: str, subject: str, start: int, *, most: int | None = None) -> Page:
        page = await super().page(stream, subject, start, most=most)
        if not self.looks:
            return page
        self.looks -= 1
        return Page([each for each in page.messages if each.sequence not in self.hides], page.more)


@pytest.fixture
async def lagging(nats_url: str) -> AsyncIterator[Log]:
    async with await connect_bus(nats_url) as first:
        bus = Lagging(first._options)
        await bus.open(5)
        bus.layout = first.layout
        async with bus:
            yield Log(bus)


def hide(log: Log, *sequences: int, looks: int) -> None:
    assert isinstance(log.bus, Lagging)
    log.bus.hides, log.bus.looks = frozenset(sequences), looks


async def test_a_base_that_a_replica_does_not_show_yet_is_lag_and_not_damage(lagging: Log) -> None:
    events = owned(3)
    await lagging.put(*events[:2], seal(events[:2]), part="base")
    await lagging.put(events[2])
    hide(lagging, 1, 2, 3, looks=9)
    assert (await lagging.fold()).state == digests(events)
    hide(lagging, 1, 2, 3, looks=9)
    assert digests(await lagging.read()) == digests(events)


async def test_an_event_that_explains_what_came_before_it_is_waited_for(lagging: Log) -> None:
    events = owned(3)
    await lagging.put(*events[:2], follow(None, seq=9, prev="ab" * 32), events[2])
    hide(lagging, 4, looks=9)
    folded = await lagging.fold()
    assert folded.state == digests(events)
    assert len(folded.strays) == 1


async def test_a_replica_that_never_catches_up_is_an_unavailable_bus_and_never_damage(
    lagging: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog.reading.reader.LAG_DEADLINE", 0.3)
    events = owned(4)
    await lagging.put(*events)
    hide(lagging, 2, looks=10_000)
    with pytest.raises(BusUnavailable, match="replica") as unavailable:
        await lagging.fold()
    assert unavailable.value.session == SESSION
    with pytest.raises(BusUnavailable):
        await lagging.read()


async def test_a_snapshots_own_event_that_lags_is_waited_for(lagging: Log) -> None:
    events = owned(4)
    await lagging.put(*events)
    snapshot = taken(await lagging.fold())
    hide(lagging, 4, looks=5)
    folded = await lagging.fold(snapshot=snapshot)
    assert (folded.state, folded.used) == (digests(events), snapshot)


async def test_a_read_covers_what_it_is_told_that_was_acked(lagging: Log) -> None:
    events = owned(4)
    last = await lagging.put(*events)
    hide(lagging, 3, 4, looks=6)
    assert (await lagging.fold()).seq == 2
    hide(lagging, 3, 4, looks=6)
    assert (await lagging.fold(at_least=last)).seq == 4


async def test_a_fold_waits_for_an_append_that_it_knows_of(log: Log) -> None:
    events = owned(2)
    first = await log.put(events[0])
    folding = asyncio.create_task(log.fold(at_least=first + 1))
    await log.fold()
    assert not folding.done()
    await log.put(events[1])
    assert (await folding).seq == 2


async def test_what_never_arrives_is_an_unavailable_bus(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LAG_DEADLINE", 0.2)
    await log.put(*owned(2))
    with pytest.raises(BusUnavailable, match="stays behind 999") as unavailable:
        await log.fold(at_least=999)
    assert unavailable.value.session == SESSION
