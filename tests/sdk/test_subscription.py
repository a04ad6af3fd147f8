"""Live subscribers against a real broker: each live event at least once, a replay never."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import flightlog
from flightlog import Delivery, Event, FlightlogError, InvalidName, Log, Subscription, connect
from flightlog import event as events
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.notices import Notices
from flightlog.bus.protocol import Outgoing
from flightlog.subscribing import letter as letters
from flightlog.subscribing import standing
from flightlog.subscribing.delivery import RETRY_MOST, backoff
from flightlog.subscribing.letter import Letter
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, until


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as opened:
        yield opened


@asynccontextmanager
async def deliveries(subscription: Subscription) -> AsyncGenerator["Taken"]:
    """What a subscription brings, one by one; it is open from the block's beginning on."""
    async with subscription:
        yield Taken(subscription)


class Taken:
    """A subscription's deliveries, taken with patience for a busy machine."""

    def __init__(self, subscription: Subscription) -> None:
        self._coming = aiter(subscription)

    async def one(self) -> Delivery:
        async with asyncio.timeout(15):
            return await anext(self._coming)

    async def dropped(self) -> tuple[Any, int]:
        """The next one's payload and attempt; nobody holds it, nobody settles it."""
        delivery = await self.one()
        return delivery.event.payload, delivery.attempt

    async def seqs(self, count: int) -> list[int]:
        """The seqs of the next ones, each acknowledged."""
        found: list[int] = []
        for _ in range(count):
            delivery = await self.one()
            await delivery.ack()
            found.append(delivery.event.seq)
        return found


async def notes(log: Log, *texts: object, key: str = "k") -> str:
    """A session of that key with these notes, from seq 2 on when it is new."""
    async with log.session(key=key) as session:
        for text in texts:
            await session.append("note", text)
    return session.id


async def dead_letters(log: Log, name: str = "*") -> list[Letter]:
    return [each async for each in letters.letters(log.bus, log.tenant, name)]


async def test_each_live_event_comes_with_its_place_and_an_id_that_stays(log: Log) -> None:
    async with deliveries(log.subscribe("all")) as taken:
        session = await notes(log, "a")
        first, note, last = [await taken.one() for _ in range(3)]
        assert [d.event.type for d in (first, note, last)] == [
            "session_started",
            "note",
            "session_suspended",
        ]
        assert (note.event.session_id, note.event.seq, note.event.payload) == (session, 2, "a")
        assert (note.id, note.attempt) == (f"{session}/2", 1)
        await note.retry()
        again = await taken.one()
        assert (again.id, again.attempt, again.event) == (note.id, 2, note.event)


async def test_only_the_types_asked_for_come_and_no_body_of_another_is_read(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    decode = events.decode

    def watched(body: bytes, *, sequence: int = 0) -> Any:
        read.append(body)
        return decode(body, sequence=sequence)

    async with deliveries(log.subscribe("picky", types=["wanted"])) as taken:
        async with log.session() as session:
            await session.append("other", "x")
            monkeypatch.setattr(events, "decode", watched)
            await session.append("wanted", 1)
            await session.append("other", "y")
            await session.append("wanted", 2)
        assert await taken.seqs(2) == [3, 5]
    assert {decode(body).type for body in read} == {"wanted"}


async def test_where_decides_by_the_event(log: Log) -> None:
    def odd(event: Event) -> bool:
        return event.type == "note" and event.payload % 2 == 1

    async with deliveries(log.subscribe("odd", where=odd)) as taken:
        await notes(log, *range(6))
        assert await taken.seqs(3) == [3, 5, 7]


async def test_what_a_where_raises_is_raised_to_whoever_waits(log: Log) -> None:
    async with deliveries(log.subscribe("w", where=lambda event: event.payload["no"])) as taken:
        await notes(log, "a")
        with pytest.raises((KeyError, TypeError)):
            await taken.one()


async def test_another_tenants_events_never_come(log: Log, nats_url: str) -> None:
    async with (
        connect(nats=nats_url, tenant="other") as other,
        deliveries(log.subscribe("n", types=["note"])) as taken,
    ):
        await notes(other, "theirs")
        await notes(log, "ours")
        assert (await taken.one()).event.payload == "ours"


async def test_a_name_is_shared_and_each_event_goes_to_one_of_its_processes(
    log: Log, nats_url: str
) -> None:
    seen: list[str] = []

    async def work(subscription: Subscription) -> None:
        await subscription.run(lambda delivery: seen.append(delivery.id))

    async with connect(nats=nats_url, tenant=TENANT) as other:
        here, there = log.subscribe("n"), other.subscribe("n")
        async with here, there:
            working = [asyncio.create_task(work(each)) for each in (here, there)]
            await notes(log, *range(50))
            await until(lambda: len(seen) >= 52)
            await asyncio.gather(here.stop(), there.stop())
            await asyncio.gather(*working)
    assert len(set(seen)) == len(seen) == 52


async def test_a_new_name_starts_now_from_the_first_event_or_at_a_time(log: Log) -> None:
    await notes(log, "old")
    between = datetime.now(UTC)
    await notes(log, "newer")
    async with deliveries(log.subscribe("now")) as taken:
        await notes(log, "now", key="now")
        assert await taken.seqs(3) == [1, 2, 3]
    async with deliveries(log.subscribe("all", types=["note"], start="all")) as taken:
        assert [(await taken.one()).event.payload for _ in range(2)] == ["old", "newer"]
    async with deliveries(log.subscribe("then", types=["note"], start=between)) as taken:
        assert (await taken.one()).event.payload == "newer"


@pytest.mark.parametrize("start", ["now", datetime.now() - timedelta(1)])  # noqa: DTZ005 refused
async def test_a_start_that_is_none_is_refused(log: Log, start: Any) -> None:
    with pytest.raises(FlightlogError, match="start is"):
        log.subscribe("n", start=start)


async def test_a_name_that_could_be_anothers_is_refused(log: Log) -> None:
    with pytest.raises(InvalidName):
        log.subscribe("projector@acme")


async def test_a_subscriber_that_returns_gets_what_came_meanwhile(log: Log) -> None:
    async with log.subscribe("n"):
        pass
    await notes(log, "meanwhile")
    async with deliveries(log.subscribe("n")) as taken:
        assert await taken.seqs(3) == [1, 2, 3]


async def test_what_was_brought_and_not_handed_out_goes_to_others_at_once(log: Log) -> None:
    async with deliveries(log.subscribe("n")) as taken:
        await notes(log, *range(8))
        await (await taken.one()).ack()
    async with deliveries(log.subscribe("n")) as taken:
        assert sorted(await taken.seqs(9)) == list(range(2, 11))


async def test_what_is_held_stays_here_and_what_is_dropped_comes_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog.bus.notices.ACK_WAIT", 1.0)
    monkeypatch.setattr("flightlog.subscribing.subscription.KEEP_EVERY", 0.2)
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        await notes(log, "held", "dropped")
        held = await taken.one()
        assert held.event.payload == "held"
        for attempt in (1, 2, 3):
            seen = await taken.dropped()
            assert seen == ("dropped", attempt)
        await held.ack()


async def test_a_delivery_is_settled_once(log: Log) -> None:
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        await notes(log, "a", "b")
        first = await taken.one()
        await first.ack()
        await first.retry()
        await first.dead("too late")
        assert (await taken.one()).event.payload == "b"
    assert await dead_letters(log) == []


async def test_retry_waits_for_its_delay_and_blocks_nothing(log: Log) -> None:
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        await notes(log, "a", "b")
        first = await taken.one()
        began = asyncio.get_running_loop().time()
        await first.retry(1.0)
        assert (await taken.one()).event.payload == "b"
        assert (await taken.one()).event.payload == "a"
        assert asyncio.get_running_loop().time() - began >= 0.9


async def test_a_dead_letter_names_event_and_reason_and_holds_no_payload(log: Log) -> None:
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        session = await notes(log, "secret-word")
        await (await taken.one()).dead("no such address" + "x" * 600)
    (letter,) = await dead_letters(log, "n")
    assert (letter.session_id, letter.seq, letter.type) == (session, 2, "note")
    assert (letter.attempts, letter.id) == (1, f"{session}/2")
    assert letter.reason.startswith("no such address")
    assert len(letter.reason) == letters.REASON_MOST
    subject = names.dead_subject(TENANT, "n", session, letter.sequence)
    stored = await log.bus.last("FLIGHTLOG_dead", subject)
    assert stored is not None
    assert b"secret-word" not in stored.body


async def test_a_letter_that_is_sent_again_comes_to_its_subscriber_alone(log: Log) -> None:
    async with (
        deliveries(log.subscribe("n", types=["note"])) as taken,
        deliveries(log.subscribe("m", types=["note"])) as others,
    ):
        await notes(log, "a")
        await (await others.one()).ack()
        await (await taken.one()).dead("down")
        (letter,) = await dead_letters(log)
        await letters.send_again(log.bus, TENANT, letter)
        assert await dead_letters(log) == []
        again = await taken.one()
        assert (again.id, again.event.payload) == (letter.id, "a")
        await again.dead("still down")
        (letter,) = await dead_letters(log)
        assert (letter.reason, letter.attempts) == ("still down", 2)
        await letters.send_again(log.bus, TENANT, letter)
        await (await taken.one()).ack()
        await notes(log, "b")
        assert (await taken.one()).event.payload == "b"
        assert (await others.one()).event.payload == "b"


async def test_letters_are_dropped_one_by_one_or_all(log: Log) -> None:
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        await notes(log, *range(3))
        for _ in range(3):
            await (await taken.one()).dead("down")
    first = (await dead_letters(log, "n"))[0]
    assert await letters.drop(log.bus, TENANT, "n", first) == 1
    assert [each.seq for each in await dead_letters(log, "n")] == [3, 4]
    assert await letters.drop(log.bus, TENANT, "n") == 2


async def test_an_event_that_is_never_settled_is_dead_after_its_attempts(log: Log) -> None:
    async with deliveries(log.subscribe("n", types=["note"], attempts=2)) as taken:
        await notes(log, "poison", "fine")
        for _ in range(2):
            poison = await taken.one()
            while poison.event.payload != "poison":
                await poison.ack()
                poison = await taken.one()
            await poison.retry()
        (letter,) = await until(lambda: dead_letters(log))
        assert (letter.seq, letter.reason) == (2, "not settled in 2 deliveries")


async def test_what_is_no_event_is_a_dead_letter_and_stops_nobody(log: Log, nats_url: str) -> None:
    session = names.mint()
    async with deliveries(log.subscribe("n")) as taken:
        async with await connect_bus(nats_url) as bus:
            subject = names.log_subject(TENANT, session, "live")
            await bus.append(subject, [Outgoing(b"{}", {})], expected=0, timeout=5)
        await notes(log, "fine")
        assert await taken.seqs(3) == [1, 2, 3]
    (letter,) = await dead_letters(log)
    assert (letter.session_id, letter.seq) == (session, 0)
    assert "no event" in letter.reason


async def test_a_notice_about_a_session_comes_as_an_event_without_a_seq(log: Log) -> None:
    session = names.mint()
    told = events.compose(
        session_id=session,
        seq=0,
        type="stalled",
        payload=carry.pack({"silent": 60}),
        prev=None,
        parent_seq=None,
        harness_version="",
    )
    async with deliveries(log.subscribe("n", types=["stalled"])) as taken:
        subject = names.notice_subject(TENANT, session)
        message = Outgoing(told.body, {"Flightlog-Type": "stalled"})
        await log.bus.append(subject, [message], expected=0, timeout=5)
        delivery = await taken.one()
        assert (delivery.event.seq, delivery.event.payload) == (0, {"silent": 60})
        assert delivery.id == f"{session}/at-1"
        await delivery.dead("nobody is there")
        (letter,) = await dead_letters(log)
        assert (letter.session_id, letter.stream) == (session, "FLIGHTLOG_notice")
        await letters.send_again(log.bus, TENANT, letter)
        assert (await taken.one()).id == delivery.id


async def test_a_function_that_raises_gets_it_again_and_is_dead_in_the_end(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog.subscribing.delivery.RETRY_FIRST", 0.01)
    seen: list[tuple[str, int]] = []

    @flightlog.subscriber("n", types=["note"], attempts=3)
    async def notify(delivery: Delivery) -> None:
        seen.append((delivery.event.payload, delivery.attempt))
        if delivery.event.payload == "bad":
            raise RuntimeError("payload bad")

    @flightlog.subscriber("m", types=["note"])
    def count(delivery: Delivery) -> None:
        seen.append((f"m {delivery.event.payload}", 0))

    async with log.subscribe("n"), log.subscribe("m"):
        pass  # both names begin here
    serving = asyncio.create_task(flightlog.serve(log, notify, count))
    await notes(log, "bad", "good")
    (letter,) = await until(lambda: dead_letters(log), timeout=15)
    await until(lambda: len(seen) == 6)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert letter.reason == "RuntimeError"
    assert sorted(seen) == [
        ("bad", 1),
        ("bad", 2),
        ("bad", 3),
        ("good", 1),
        ("m bad", 0),
        ("m good", 0),
    ]


async def test_a_function_that_was_not_declared_is_refused(log: Log) -> None:
    with pytest.raises(FlightlogError, match="print is no subscriber"):
        await flightlog.serve(log, print)


async def test_stopping_lets_what_runs_end_and_gives_the_rest_to_others(log: Log) -> None:
    running, release, ended = asyncio.Event(), asyncio.Event(), list[int]()

    async def slow(delivery: Delivery) -> None:
        running.set()
        await release.wait()
        ended.append(delivery.event.seq)

    subscription = log.subscribe("n")
    async with subscription:
        work = asyncio.create_task(subscription.run(slow))
        await notes(log, "a", "b")
        await running.wait()
        await subscription.stop()
        release.set()
        await work
    assert ended == [1]
    async with deliveries(log.subscribe("n")) as taken:
        assert sorted(await taken.seqs(3)) == [2, 3, 4]


async def test_a_consumer_that_vanishes_is_made_again_where_it_stood(
    log: Log, nats_url: str
) -> None:
    async with (
        await connect_bus(nats_url) as bus,
        deliveries(log.subscribe("n", types=["note"])) as taken,
    ):
        await notes(log, "a")
        assert (await taken.one()).event.payload == "a"
        await removed(bus, "n")
        await notes(log, "b")
        got = set[str]()
        while "b" not in got:
            got.add((await taken.one()).event.payload)


async def removed(bus: NatsBus, name: str) -> None:
    consumer = f"FLIGHTLOG_0.{names.durable(TENANT, name)}"
    assert (await bus.api(f"CONSUMER.DELETE.{consumer}"))["success"]


async def test_a_consumer_of_that_name_that_brings_something_else_is_refused(
    log: Log, nats_url: str
) -> None:
    async with await connect_bus(nats_url) as bus:
        await Notices(bus, "FLIGHTLOG_0", names.durable(TENANT, "n")).open()
        with pytest.raises(FlightlogError, match="brings all of it"):
            async with log.subscribe("n"):
                pass


async def test_a_restarted_broker_leaves_nobody_deaf(log: Log, nats_server: Server) -> None:
    async with deliveries(log.subscribe("n", types=["note"])) as taken:
        await notes(log, "before")
        held = await taken.one()
        for round_ in range(2):
            await asyncio.to_thread(nats_server.kill)
            await asyncio.to_thread(nats_server.start)
            await notes(log, round_)
            got = set[object]()
            while round_ not in got:
                delivery = await taken.one()
                got.add(delivery.event.payload)
                await delivery.ack()
        await held.ack()


async def test_the_lag_of_each_subscriber_and_its_dead_letters_are_known(
    log: Log, nats_url: str
) -> None:
    async with await connect_bus(nats_url) as bus:
        async with deliveries(log.subscribe("n")) as taken, log.subscribe("idle"):
            pass
        await notes(log, "a", "b")
        async with deliveries(log.subscribe("n", ahead=1)) as taken:
            await (await taken.one()).dead("down")

            async def known() -> dict[str, tuple[int, int]]:
                rows = await standing.standings(bus, TENANT)
                return {each.name: (each.lag, each.dead) for each in rows}

            wanted = {"idle": (4, 0), "n": (3, 1)}
            async with asyncio.timeout(10):
                while await known() != wanted:  # acks are heard a little later
                    pass
            assert await standing.standings(bus, "another") == []


@pytest.mark.parametrize(("attempt", "pause"), [(1, 1), (2, 2), (5, 16), (11, RETRY_MOST)])
def test_pauses_double_up_to_ten_minutes(attempt: int, pause: float) -> None:
    assert backoff(attempt) == pause
