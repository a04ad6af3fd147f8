"""The bus protocol over a simulated network: answers as the servers give them, when they arrive."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import Context
from typing import Any

from flightlog.bus import answer
from flightlog.bus.answer import Answer, Unclear
from flightlog.bus.protocol import Message, Outgoing, Page
from flightlog.errors import BusUnavailable
from flightlog.wire.layout import Layout
from tests.sim import broker as brokers
from tests.sim.broker import Stream
from tests.sim.faults import Fate
from tests.sim.network import Ear, Heard, Network

READ_TIMEOUT = 5.0  # seconds, as `flightlog.bus.nats_bus` has it
MAX_PAYLOAD = 1 << 20
NOTHING = object()  # what a request is answered that is not answered
_WHERE = "the simulated servers"

Reply = Callable[[Any], None]
Serve = Callable[[Reply], None]


class _NoAnswer(Exception):
    """The answer did not come, or the link broke; says nothing about what was done."""


class SimBus:
    """One process' connection."""

    def __init__(self, net: Network, author: str, context: Context) -> None:
        self.net, self.author, self._context = net, author, context
        self.cut = False
        self._asking: dict[asyncio.Future[Any], None] = {}
        self._arrived = 0.0

    @property
    def layout(self) -> Layout:
        return self.net.broker.layout

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    async def twin(self, *, echo: bool) -> "SimBus":
        del echo  # nobody here listens to himself
        return SimBus(self.net, self.author, self._context)

    async def close(self) -> None:
        self.cut = True

    def disconnect(self) -> None:
        """The link breaks: what was sent may arrive, its answer never does."""
        self.cut = True
        asking, self._asking = self._asking, {}
        for done in asking:
            if not done.done():
                done.set_exception(_NoAnswer("ConnectionClosedError"))

    def reconnect(self) -> None:
        """The link is back; old bytes may still be on their way."""
        self.cut = False
        self._arrived = 0.0
        self.net.tell_of_silence(self)

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        net = self.net
        group = list(messages)
        fate = net.weather.append()

        def serve(reply: Reply) -> None:
            self._store(subject, group, expected, fate, reply)

        if net.watch is not None:
            net.watch(f"   {self.author} sends {len(group)} expecting {expected}: {_short(group)}")
        try:
            raw = await self._ask(serve, fate, timeout)
        except _NoAnswer as exc:
            return Unclear(str(exc))
        stream = net.broker.stream_on(subject).name
        return answer.read(raw, stream=stream, limit=MAX_PAYLOAD)

    def _store(
        self, subject: str, group: list[Outgoing], expected: int, fate: Fate, reply: Reply
    ) -> None:
        net = self.net
        broker, rng = net.broker, net.rng
        net.tell(subject, group[-1].body, self)
        stream = broker.stream_on(subject)
        if not broker.leader:
            reply(NOTHING)
        elif fate == "odd" or (fate == "busy" and len(group) > 1):
            reply(rng.choice(brokers.BUSY if fate == "busy" else self._oddities()))
        elif (refused := broker.refusal(stream, subject, expected)) is not None:
            leaks = net.weather.leak and rng.random() < net.weather.leak
            if leaks and stream is broker.log and not (stream.full or stream.proposed):
                last = stream.store(subject, group, self.author, net.loop.time(), leaked=True)
                reply(brokers.ack(stream, last))
            else:
                reply(refused)
        elif net.weather.replicas == 1:
            last = stream.store(subject, group, self.author, net.loop.time())
            reply(brokers.ack(stream, last))
        else:
            self._propose(stream, subject, group, reply)

    def _oddities(self) -> tuple[bytes, ...]:
        alone = self.net.weather.replicas == 1
        return brokers.ODD if alone else (*brokers.ODD, brokers.IN_FLIGHT, brokers.NO_ROOM)

    def _propose(self, stream: Stream, subject: str, group: list[Outgoing], reply: Reply) -> None:
        """Three nodes agree first; meanwhile a change of leaders may take or drop it."""

        def settle(stored: bool, answered: bool = False) -> None:
            if stream.proposed.get(subject) is not settle:
                return
            del stream.proposed[subject]
            last = 0
            if stored:
                last = stream.store(subject, group, self.author, self.net.loop.time())
            reply(brokers.ack(stream, last) if stored and answered else NOTHING)

        stream.proposed[subject] = settle
        self.net.post(self.net.weather.travel(), settle, True, True)

    async def after(
        self, stream: str, subject: str, sequence: int, *, leader: bool = False
    ) -> Message | None:
        held = self.net.broker.streams[stream]

        def serve(reply: Reply) -> None:
            if not leader:
                reply(held.first(subject, sequence + 1, self._copy(held)))
            else:
                found = held.first(subject, sequence + 1, held.op)
                reply(found if self.net.broker.leader else NOTHING)

        found: Message | None = await self._read(serve)
        return found

    async def last(self, stream: str, subject: str) -> Message | None:
        held = self.net.broker.streams[stream]

        def serve(reply: Reply) -> None:
            entries = held.entries(subject)
            found = entries[-1].message if entries else None
            reply(found if self.net.broker.leader else NOTHING)

        found: Message | None = await self._read(serve)
        return found

    async def page(self, stream: str, subject: str, start: int, *, most: int | None = None) -> Page:
        held = self.net.broker.streams[stream]

        def serve(reply: Reply) -> None:
            page = min(most or self.net.weather.page, self.net.weather.page)
            messages, more = held.scan(subject, start, self._copy(held), page)
            reply(Page(messages, more))

        found: Page = await self._read(serve)
        return found

    async def purge(self, stream: str, subject: str, *, below: int) -> int:
        held = self.net.broker.streams[stream]

        def serve(reply: Reply) -> None:
            if self.net.broker.leader:
                reply(held.purge(subject, below, self.net.loop.time()))
            else:
                reply(NOTHING)

        purged: int = await self._read(serve)
        return purged

    async def subjects(self, stream: str, *, filter: str) -> AsyncIterator[dict[str, int]]:
        held = self.net.broker.streams[stream]

        def serve(reply: Reply) -> None:
            found = {filter: len(held.entries(filter))}
            reply(found if self.net.broker.leader else NOTHING)

        found: dict[str, int] = await self._read(serve)
        if found[filter]:
            yield found

    async def api(self, verb: str, body: bytes = b"") -> dict[str, Any]:
        """No consumers here."""
        del verb, body
        return {"consumers": [], "total": 0}

    def _copy(self, held: Stream) -> int:
        """The last operation that the replica which answers has applied."""
        behind = self.net.weather.behind()
        return held.op if behind < 0 else held.as_of(self.net.loop.time() - behind)

    async def _read(self, serve: Serve) -> Any:
        try:
            return await self._ask(serve, self.net.weather.read(), READ_TIMEOUT)
        except _NoAnswer as exc:
            raise BusUnavailable(_WHERE, str(exc)) from exc

    async def _ask(self, serve: Serve, fate: Fate, timeout: float) -> Any:
        """Send a request; its answer, or `_NoAnswer` after `timeout` or when the link ends."""
        net = self.net
        net.steps += 1
        if self.cut and net.rng.random() < 0.5:
            raise _NoAnswer("OutboundBufferLimitError")
        done = net.loop.create_future()
        self._asking[done] = None
        limit = net.loop.time() + timeout
        if fate == "lost" or self.cut:
            self._give_up(done, limit)
        else:
            self._send(_Request(self, serve, fate, done, limit))
        try:
            return await done
        finally:
            self._asking.pop(done, None)

    def _send(self, request: "_Request") -> None:
        """One link keeps the order. Half of the requests are served at once and answered late."""
        net = self.net
        now, trip = net.loop.time(), net.weather.travel()
        if request.fate == "late":
            net.post(net.weather.late(), request.serve)
            request.give_up()
        elif self._arrived <= now and net.rng.random() < 0.5:
            request.back = trip
            request.serve()
        else:
            self._arrived = max(self._arrived, now + trip)
            net.post(self._arrived - now, request.serve)

    def _give_up(self, done: "asyncio.Future[Any]", limit: float) -> None:
        """No answer will come: the asker's own timer ends it."""
        self.net.loop.call_at(limit, _expire, done, context=self._context)

    async def listen(
        self, subject: str, heard: Heard, *, missed: Callable[[], None] = lambda: None
    ) -> Ear:
        return Ear(self.net, self, subject, heard, missed)

    async def say(self, subject: str, body: bytes) -> None:
        if not self.cut:
            self.net.tell(subject, body, self)


def _short(what: object) -> str:
    match what:
        case bytes() if b'"error"' in what:
            return what.decode()[9:90]
        case [Outgoing() as first, *_]:
            return str(first.headers or first.body[:60])
        case Page():
            return f"{len(what.messages)} messages"
        case Message():
            return f"{what.sequence} {what.body[:140]!r}"
        case _:
            return str(what)


class _Request:
    """A request on its way, and its answer on the way back."""

    __slots__ = ("_bus", "_done", "_limit", "_serve", "back", "fate")

    def __init__(
        self,
        bus: SimBus,
        serve: Serve,
        fate: Fate,
        done: "asyncio.Future[Any]",
        limit: float,
    ) -> None:
        self._bus, self._serve, self.fate, self._done, self._limit = bus, serve, fate, done, limit
        self.back = 0.0

    def serve(self) -> None:
        if self._bus.net.broker.up:
            self._serve(self._reply)
        else:
            self._reply(NOTHING)

    def give_up(self) -> None:
        self._bus._give_up(self._done, self._limit)

    def _reply(self, result: Any) -> None:
        net = self._bus.net
        if net.watch is not None:
            net.watch(f"   {self._bus.author} ({self.fate}) is answered {_short(result)}")
        if result is NOTHING or self.fate == "ack lost":
            self.give_up()
        elif self.back:
            net.post(self.back, _answer, self._done, result)
        else:
            _answer(self._done, result)


def _answer(done: "asyncio.Future[Any]", result: Any) -> None:
    if not done.done():
        done.set_result(result)


def _expire(done: "asyncio.Future[Any]") -> None:
    if not done.done():
        done.set_exception(_NoAnswer("TimeoutError"))
