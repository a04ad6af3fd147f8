"""A base: what becomes of it with a seal, without one, and with two authors."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from flightlog import BusUnavailable, NoSuchSession, SessionPurged, TooLarge
from flightlog.bus import nats_bus
from flightlog.bus.answer import Answer, Unclear
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Outgoing
from flightlog.connecting import connect
from flightlog.event import Control, decode
from flightlog.reading import reader
from flightlog.reading.reader import Folded
from flightlog.running import opening
from flightlog.snapshot import SESSION
from flightlog.state import SessionState
from flightlog.wire import payload as payloads
from flightlog.wire import subject as names
from flightlog.writing import keys, seal
from flightlog.writing.draft import Draft
from tests.scripted import TENANT, chain_is_whole, stored, until

KEY = "a key"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await nats_bus.connect_bus(nats_url)
    yield bus
    await bus.close()


def drafts(count: int) -> list[Draft]:
    writer = payloads.Writer(number=1, id="f" * 32)
    started = payloads.encode(payloads.SessionStarted(writer=writer, key=KEY))
    said = [msgspec.Raw(b'{"content":"%d"}' % n) for n in range(1, count)]
    return [Draft("session_started", started), *(Draft("user_message", raw) for raw in said)]


async def messages(bus: NatsBus, session: str) -> list[Any]:
    subject = names.log_subject(TENANT, session, "base")
    page = await bus.page(bus.layout.stream_of(session), subject, 0)
    return [decode(message.body) for message in page.messages]


async def fold(bus: NatsBus, session: str) -> Folded[SessionState]:
    return await reader.fold(bus, TENANT, session, SESSION)


async def test_a_sealed_base_is_a_session_of_exactly_its_events(
    bus: NatsBus, nats_url: str
) -> None:
    session = names.mint()
    head = await seal.write_base(bus, TENANT, session, drafts(700), harness_version="import/1")
    assert (head.seq, head.part, head.writer) == (700, "base", 1)
    folded = await fold(bus, session)
    assert (folded.presence, folded.head) == ("present", head)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        events = await stored(log, session)
    assert chain_is_whole(events)
    assert {event.harness_version for event in events} == {"import/1"}


async def test_the_seal_names_the_number_and_the_digest_of_the_last_event(bus: NatsBus) -> None:
    session = names.mint()
    head = await seal.write_base(bus, TENANT, session, drafts(3))
    *_, last = await messages(bus, session)
    assert isinstance(last, Control)
    assert (last.type, last.payload) == ("seal", {"count": 3, "digest": head.digest})


async def test_a_drafts_own_time_is_kept(bus: NatsBus) -> None:
    session = names.mint()
    first, second = drafts(2)
    stamp = "2025-01-02T03:04:05.000006Z"
    await seal.write_base(bus, TENANT, session, [first, msgspec.structs.replace(second, ts=stamp)])
    _, event, _ = await messages(bus, session)
    assert event.ts == stamp


async def half(count: int, go_on: asyncio.Event, written: asyncio.Event) -> AsyncIterator[Draft]:
    """Enough for a first group, then a stop in the middle."""
    for draft in drafts(count):
        yield draft
    written.set()
    await go_on.wait()
    yield Draft("user_message", msgspec.Raw(b'{"content":"late"}'))


async def start_half(bus: NatsBus, session: str) -> tuple["asyncio.Task[Any]", asyncio.Event]:
    go_on, written = asyncio.Event(), asyncio.Event()
    author = asyncio.create_task(seal.write_base(bus, TENANT, session, half(300, go_on, written)))
    await written.wait()
    return author, go_on


async def test_a_base_without_a_seal_is_no_session(
    bus: NatsBus, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "SEAL_PATIENCE", 0.2)
    entry = await keys.claim(bus, TENANT, KEY, made_by="import")
    author, go_on = await start_half(bus, entry.id)
    assert (await seal.look(bus, TENANT, entry.id)).standing == "open"
    assert (await fold(bus, entry.id)).presence == "unsealed"
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(NoSuchSession):
            await log.state(entry.id)
        with pytest.raises(NoSuchSession, match="not sealed"):
            async with log.session(key=KEY):
                pass
        go_on.set()
        await author
        async with log.session(key=KEY) as session:
            assert session.id == entry.id


async def test_an_abandoned_base_stops_its_author_and_frees_its_key(bus: NatsBus) -> None:
    entry = await keys.claim(bus, TENANT, KEY, made_by="import")
    author, go_on = await start_half(bus, entry.id)
    assert await abandon(bus, entry)
    go_on.set()
    with pytest.raises(SessionPurged):
        await author
    [tombstone] = await messages(bus, entry.id)
    assert (tombstone.type, tombstone.payload["by"]) == ("tombstone", "a test")
    assert (await fold(bus, entry.id)).presence != "present"
    assert (await keys.claim(bus, TENANT, KEY)).id != entry.id


async def abandon(bus: NatsBus, entry: keys.Entry) -> bool:
    return await seal.abandon(
        bus, TENANT, entry.id, entries=[entry], by="a test", why="its author is gone"
    )


async def test_abandoning_twice_is_abandoning_once(bus: NatsBus) -> None:
    entry = await keys.claim(bus, TENANT, KEY, made_by="import")
    author, _ = await start_half(bus, entry.id)
    author.cancel()
    assert await abandon(bus, entry)
    before = await messages(bus, entry.id)
    anew = await keys.claim(bus, TENANT, KEY, made_by="import")
    assert await abandon(bus, entry)
    assert await messages(bus, entry.id) == before
    assert await keys.look_up(bus, TENANT, KEY) == anew


async def test_a_sealed_base_is_never_abandoned(bus: NatsBus) -> None:
    entry = await keys.claim(bus, TENANT, KEY, made_by="import")
    await seal.write_base(bus, TENANT, entry.id, drafts(2))
    assert not await abandon(bus, entry)
    assert (await fold(bus, entry.id)).presence == "present"
    assert await keys.look_up(bus, TENANT, KEY) == entry


async def test_of_two_authors_of_one_base_one_is_fenced_and_leaves_no_trace(bus: NatsBus) -> None:
    session = names.mint()
    other = await bus.twin(echo=True)
    try:
        outcomes = await asyncio.gather(
            seal.write_base(bus, TENANT, session, drafts(600)),
            seal.write_base(other, TENANT, session, drafts(600)),
            return_exceptions=True,
        )
    finally:
        await other.close()
    assert sorted(type(each).__name__ for each in outcomes) == ["Fenced", "Head"]
    folded = await fold(bus, session)
    assert (folded.presence, folded.seq, folded.strays) == ("present", 600, ())


class Deaf(NatsBus):
    """A real connection that does not hear the answers to its appends, some of the time."""

    deaf = False

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        answer = await super().append(subject, messages, expected=expected, timeout=timeout)
        self.deaf = not self.deaf
        return Unclear("lost on the way") if self.deaf else answer


async def test_lost_answers_double_and_lose_nothing(bus: NatsBus) -> None:
    session = names.mint()
    bus.__class__ = Deaf
    head = await seal.write_base(bus, TENANT, session, drafts(600))
    folded = await fold(bus, session)
    assert (folded.head, folded.strays, folded.presence) == (head, (), "present")
    assert len(await all_messages(bus, session)) == 601


async def all_messages(bus: NatsBus, session: str) -> list[Any]:
    found: list[Any] = []
    subject, start, more = names.log_subject(TENANT, session, "base"), 0, True
    while more:
        page = await bus.page(bus.layout.stream_of(session), subject, start)
        found += page.messages
        start, more = (page.messages[-1].sequence + 1 if page.messages else start), page.more
    return found


async def test_without_an_answer_in_time_the_base_stays_open(
    bus: NatsBus, nats_server: Any
) -> None:
    session = names.mint()
    author, _ = await start_half(bus, session)
    author.cancel()
    nats_server.kill()
    with pytest.raises(BusUnavailable):
        await seal.write_base(bus, TENANT, names.mint(), drafts(2), deadline=0.5)
    nats_server.start()
    assert await until(lambda: standing(bus, session)) == "open"


async def standing(bus: NatsBus, session: str) -> str | None:
    try:
        return (await seal.look(bus, TENANT, session)).standing
    except BusUnavailable:
        return None


async def test_an_event_that_no_message_holds_leaves_no_session(bus: NatsBus) -> None:
    session = names.mint()
    huge = Draft("user_message", msgspec.Raw(b'{"content":"hi","%s":1}' % (b"k" * (2 << 20))))
    with pytest.raises(TooLarge):
        await seal.write_base(bus, TENANT, session, [*drafts(1), huge])
    assert (await fold(bus, session)).presence == "unsealed"
