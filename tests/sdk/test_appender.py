"""Appending on a real server: one queue, in order, through every outage; nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from flightlog.bus.answer import Answer, Unclear
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.patience import pause
from flightlog.bus.protocol import Outgoing
from flightlog.errors import (
    BusUnavailable,
    Fenced,
    FlightlogError,
    LogFull,
    NotPermitted,
    SessionPurged,
    TooLarge,
)
from flightlog.event import Event
from flightlog.reading.chain import Head
from flightlog.reading.reader import read
from flightlog.wire import carry, subject
from flightlog.writing.appender import QUEUE_BYTES, Appender
from flightlog.writing.draft import Draft
from flightlog.writing.writer import HEADER_ROOM, Writer
from flightlog_recorder.embedded import Server
from tests.conftest import MakeNats
from tests.handmade import takeover, tombstone

SESSION = "sess_appender"
SUBJECT = subject.log_subject("acme", SESSION, "live")


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    async with await connect_bus(nats_url) as connected:
        yield connected


class Lossy(NatsBus):
    """A real connection whose acks can be lost on the way back: what was sent is stored."""

    lost: frozenset[int] = frozenset()  # which of the sends, from 0 on
    sent: list[int]

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        self.sent.append(len(messages))
        answer = await super().append(subject, messages, expected=expected, timeout=timeout)
        return Unclear("the ack was lost") if len(self.sent) - 1 in self.lost else answer


@pytest.fixture
async def lossy(bus: NatsBus) -> AsyncIterator[Lossy]:
    connected = Lossy(bus._options)
    connected.sent = []
    await connected.open(5)
    connected.layout = bus.layout
    async with connected:
        yield connected


def appender(bus: NatsBus, *, seen: list[Event] | None = None, replicas: int = 3) -> Appender:
    writer = Writer(SESSION, Head(), expected=0, harness_version="1", number=1, replicas=replicas)
    told = seen if seen is not None else []
    return Appender(bus, SUBJECT, bus.layout.stream_of(SESSION), writer, told.append)


def draft(n: object = 0, *, size: int = 0) -> Draft:
    return Draft("note", carry.pack({"n": n, "pad": "x" * size}))


async def in_log(bus: NatsBus) -> list[Any]:
    return [event.payload["n"] async for event in read(bus, "acme", SESSION)]


async def all_of(*appends: "asyncio.Task[Event]") -> list[Event | BaseException]:
    return list(await asyncio.gather(*appends, return_exceptions=True))


async def test_appends_are_stored_in_the_order_they_were_made(bus: NatsBus) -> None:
    seen: list[Event] = []
    append = appender(bus, seen=seen)
    events = await asyncio.gather(*(append.append(draft(n)) for n in range(300)))
    assert [each.payload["n"] for each in events] == list(range(300))
    assert [each.seq for each in events] == list(range(1, 301))
    assert await in_log(bus) == list(range(300))
    assert seen == list(events)


async def test_an_event_is_shown_before_its_append_returns(bus: NatsBus) -> None:
    seen: list[Event] = []
    append = appender(bus, seen=seen)
    for n in range(3):
        event = await append.append(draft(n))
        assert seen[-1] is event


async def test_what_is_queued_while_one_is_in_flight_leaves_as_one_batch(lossy: Lossy) -> None:
    append = appender(lossy)
    first = asyncio.create_task(append.append(draft(0)))
    while not lossy.sent:
        await asyncio.sleep(0)
    await asyncio.gather(first, *(append.append(draft(n)) for n in range(1, 41)))
    assert lossy.sent == [1, 40]


@pytest.mark.parametrize(("lost", "sent"), [(0, [1, 1, 29]), (1, [1, 29, 29])])
async def test_a_lost_ack_stores_nothing_twice_and_sends_little_again(
    lossy: Lossy, lost: int, sent: list[int]
) -> None:
    append = appender(lossy)
    lossy.lost = frozenset({lost})
    events = await asyncio.gather(*(append.append(draft(n)) for n in range(30)))
    assert await in_log(lossy) == list(range(30))
    assert [each.sequence for each in events] == list(range(1, 31))
    assert lossy.sent == sent


async def test_appends_outlive_a_broker_that_is_killed_and_comes_back(
    nats_server: Server, bus: NatsBus
) -> None:
    append = appender(bus)
    await append.append(draft(0))
    nats_server.kill()
    waiting = [asyncio.create_task(append.append(draft(n))) for n in range(1, 20)]
    while not append.trouble:
        await asyncio.sleep(0)
    nats_server.start()
    events = await asyncio.gather(*waiting)
    assert await in_log(bus) == list(range(20))
    assert [each.seq for each in events] == list(range(2, 21))
    assert append.trouble == ""


async def test_a_broker_killed_over_and_over_loses_no_acked_event_and_doubles_none(
    nats_server: Server, bus: NatsBus
) -> None:
    append = appender(bus)
    acked: list[int] = []

    async def work(worker: int) -> None:
        for n in range(15):
            event = await append.append(draft(f"{worker}.{n}"))
            acked.append(event.seq)

    working = asyncio.gather(*(work(worker) for worker in range(4)))
    for _ in range(3):
        before = len(acked)
        while len(acked) == before and not working.done():
            await asyncio.sleep(0)
        nats_server.kill()
        nats_server.start()
    await working
    found = await in_log(bus)
    assert sorted(acked) == list(range(1, 61))
    assert sorted(found) == sorted(f"{worker}.{n}" for worker in range(4) for n in range(15))


# --- giving up ---


async def test_a_deadline_takes_back_what_was_not_sent_and_keeps_what_was(
    nats_server: Server, bus: NatsBus
) -> None:
    append = appender(bus)
    nats_server.pause()
    try:
        sent = asyncio.create_task(append.append(draft("sent"), deadline=0.3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(BusUnavailable, match=f"session {SESSION}"):
            await append.append(draft("withdrawn"), deadline=0.2)
        with pytest.raises(BusUnavailable):
            await sent
    finally:
        nats_server.resume()
    await append.append(draft("next"))
    assert await in_log(bus) == ["sent", "next"]


@pytest.mark.parametrize("behind", [0, 3])
async def test_a_cancelled_append_that_was_sent_is_stored_all_the_same_and_once(
    nats_server: Server, bus: NatsBus, behind: int
) -> None:
    seen: list[Event] = []
    append = appender(bus, seen=seen)
    nats_server.pause()
    try:
        sent = asyncio.create_task(append.append(draft("sent")))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(append.append(draft(n))) for n in range(behind)]
        await asyncio.sleep(0)
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
    finally:
        nats_server.resume()
    assert await append.settle(5)
    assert await in_log(bus) == ["sent", *range(behind)]
    assert [event.payload["n"] for event in seen] == ["sent", *range(behind)]
    await asyncio.gather(*waiting)


async def test_drafts_that_are_joined_leave_together_even_from_an_idle_queue(lossy: Lossy) -> None:
    append = appender(lossy, replicas=1)
    joined = Draft("note", carry.pack({"n": 0}), joined=True)
    await asyncio.gather(append.append(joined), append.append(draft(1)))
    assert lossy.sent == [2]


async def test_a_caller_cancelled_while_the_writer_is_fenced_is_cancelled_and_no_more(
    bus: NatsBus,
) -> None:
    append = appender(bus)
    await append.append(draft(0))
    await (await bus.client()).request(SUBJECT, takeover(None, 9).body, timeout=5)
    waiting = [asyncio.create_task(append.append(draft(n))) for n in range(3)]
    while append.error is None:
        await asyncio.sleep(0)
    waiting[2].cancel()
    _, fenced, cancelled = await all_of(*waiting)
    assert isinstance(fenced, Fenced)
    assert isinstance(cancelled, asyncio.CancelledError)


async def test_a_draft_withdrawn_before_the_queue_even_started_does_not_stop_it(
    bus: NatsBus,
) -> None:
    append = appender(bus)
    early = asyncio.create_task(append.append(draft("never")))
    await asyncio.sleep(0)
    early.cancel()
    await asyncio.wait({early})
    await append.append(draft("next"))
    assert (await in_log(bus))[-1] == "next"
    with pytest.raises(BusUnavailable):
        await append.append(draft("too late"), deadline=0)
    assert (await append.append(draft("last"))).payload["n"] == "last"


async def test_a_deadline_counts_the_time_spent_waiting_for_room(
    nats_server: Server, bus: NatsBus
) -> None:
    append = appender(bus)
    nats_server.pause()
    try:
        size = 500_000
        full = [
            asyncio.create_task(append.append(draft(n, size=size), deadline=60))
            for n in range(QUEUE_BYTES // size)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusUnavailable):
            await append.append(draft("late", size=size), deadline=0.2)
    finally:
        nats_server.resume()
    await asyncio.gather(*full)
    assert await in_log(bus) == list(range(len(full)))


async def test_a_cancelled_append_that_was_not_sent_leaves_no_hole(
    nats_server: Server, bus: NatsBus
) -> None:
    append = appender(bus)
    nats_server.pause()
    try:
        waiting = [asyncio.create_task(append.append(draft(n))) for n in range(5)]
        await asyncio.sleep(0)
        late = [asyncio.create_task(append.append(draft(n))) for n in (5, 6, 7)]
        await asyncio.sleep(0)
        late[1].cancel()
        await asyncio.wait({late[1]})
    finally:
        nats_server.resume()
    await asyncio.gather(*waiting, late[0], late[2])
    assert await in_log(bus) == [0, 1, 2, 3, 4, 5, 7]
    assert [event.seq async for event in read(bus, "acme", SESSION)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("callers", [1, 5])
async def test_closing_tells_everyone_who_still_waits(
    nats_server: Server, bus: NatsBus, callers: int
) -> None:
    append = appender(bus)
    nats_server.pause()
    try:
        waiting = [asyncio.create_task(append.append(draft(n))) for n in range(callers)]
        await asyncio.sleep(0)
        assert not await append.settle(0.05)
        await append.close()
        failed = await all_of(*waiting)
        assert all("left before an ack came" in str(each) for each in failed)
    finally:
        nats_server.resume()
    with pytest.raises(BusUnavailable):
        await append.append(draft("later"))


# --- refusals ---


async def test_an_event_over_the_limit_is_refused_before_anything_is_sent(lossy: Lossy) -> None:
    append = appender(lossy)
    with pytest.raises(TooLarge, match=r"payload of note is too large: .* the limit is") as refused:
        await append.append(draft(size=2 << 20))
    assert refused.value.size > 2 << 20 > refused.value.limit
    assert lossy.sent == []
    await append.append(draft("small"))


async def test_the_largest_draft_that_is_let_in_is_stored(bus: NatsBus) -> None:
    append = appender(bus)
    size = bus.max_payload - HEADER_ROOM - draft().size
    assert (await append.append(draft(size=size))).seq == 1
    with pytest.raises(TooLarge):
        await append.append(draft(size=size + 1))


async def test_a_full_stream_fails_what_is_queued_and_serves_again_once_there_is_room(
    bus: NatsBus,
) -> None:
    config = dict((await bus.stream_configs())[0])
    await update(bus, config | {"max_bytes": 50_000})
    append = appender(bus)
    await append.append(draft(0, size=30_000))
    failed = await all_of(
        *[asyncio.create_task(append.append(draft("no", size=30_000))) for _ in range(3)]
    )
    assert all(isinstance(each, LogFull) for each in failed)
    await update(bus, config)
    assert (await append.append(draft(1))).seq == 2
    assert await in_log(bus) == [0, 1]


async def update(bus: NatsBus, config: dict[str, Any]) -> None:
    answered = await bus.api(f"STREAM.UPDATE.{config['name']}", carry.pack(config))
    assert "error" not in answered


@pytest.mark.parametrize(
    ("other", "error"),
    [(takeover(None, 9).body, Fenced), (tombstone(session=SESSION), SessionPurged)],
)
async def test_another_writer_ends_this_one_for_good(
    bus: NatsBus, other: bytes, error: type[FlightlogError]
) -> None:
    append = appender(bus)
    await append.append(draft(0))
    client = await bus.client()
    await client.request(SUBJECT, other, timeout=5)
    failed = await all_of(*[asyncio.create_task(append.append(draft(n))) for n in range(5)])
    assert all(isinstance(each, error) for each in failed)
    with pytest.raises(error):
        await append.append(draft("later"))
    assert not await append.settle(0)
    page = await bus.page("FLIGHTLOG_0", SUBJECT, 0)
    assert len(page.messages) == 2


async def test_a_takeover_is_seen_when_asked_without_appending(bus: NatsBus) -> None:
    append = appender(bus)
    last = await append.append(draft(0))
    assert await append.overtaken() is None
    client = await bus.client()
    await client.request(SUBJECT, b"garbage", timeout=5)
    assert await append.overtaken() is None
    await client.request(SUBJECT, takeover(last, 2).body, timeout=5)
    assert isinstance(await append.overtaken(), Fenced)


async def test_a_missing_permission_fails_the_append_at_once(make_nats: MakeNats) -> None:
    server = make_nats(
        access="""authorization { users: [
          { user: boss, password: pw }
          { user: reader, password: pw, permissions: {
              publish: ["$JS.API.STREAM.LIST", "$JS.API.DIRECT.GET.>"], subscribe: "_INBOX.>" } }
        ] }"""
    )
    address = f"pw@127.0.0.1:{server.port}"
    async with await connect_bus(f"nats://boss:{address}"):
        pass
    async with await connect_bus(f"nats://reader:{address}") as bus:
        append = appender(bus)
        failed = await all_of(*[asyncio.create_task(append.append(draft(n))) for n in range(3)])
        assert all(isinstance(each, NotPermitted) for each in failed)


async def test_a_defect_behind_the_queue_is_told_to_who_waits_and_never_hangs(
    bus: NatsBus, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(_: Event) -> None:
        raise ZeroDivisionError

    writer = Writer(SESSION, Head(), expected=0, harness_version="1", number=1)
    append = Appender(bus, SUBJECT, bus.layout.stream_of(SESSION), writer, defect)
    first, *rest = await all_of(*[asyncio.create_task(append.append(draft(n))) for n in range(3)])
    assert isinstance(first, Event)
    assert all(isinstance(each, BusUnavailable) for each in rest)
    with pytest.raises(BusUnavailable, match="ZeroDivisionError"):
        await append.append(draft("later"))
    assert "appending to session sess_appender failed" in caplog.text


# --- waiting ---


async def test_what_is_queued_can_be_waited_for(nats_server: Server, bus: NatsBus) -> None:
    append = appender(bus)
    await append.caught_up()
    assert await append.settle(0)
    nats_server.pause()
    waiting = [asyncio.create_task(append.append(draft(n))) for n in range(3)]
    await asyncio.sleep(0)
    catching = asyncio.create_task(append.caught_up())
    assert not await append.settle(0.05)
    assert not catching.done()
    nats_server.resume()
    await catching
    assert await append.settle(5)
    await asyncio.gather(*waiting)


def test_pauses_double_to_two_seconds_with_jitter_and_never_overflow() -> None:
    assert all(0.01 <= pause(1) <= 0.02 for _ in range(100))
    assert all(1.0 <= pause(attempt) <= 2.0 for attempt in (8, 100, 5_000))
    assert len({pause(5) for _ in range(100)}) > 50
