"""The servers and the wires: what is sent arrives some time later, whoever may have died since."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from itertools import chain
from random import Random
from typing import Any, Protocol

from flightlog.bus.protocol import Message
from tests.sim.broker import Broker
from tests.sim.faults import Weather
from tests.sim.loop import VirtualLoop

Heard = Callable[[Message], Awaitable[None]]


class Link(Protocol):
    """A process' end of a wire."""

    cut: bool


class Network:
    """The servers, the wires to them, and a count of the steps that were taken."""

    def __init__(self, loop: VirtualLoop, rng: Random, weather: Weather) -> None:
        self.loop, self.rng, self.weather = loop, rng, weather
        self.broker = Broker(weather.replicas, full_first=weather.full_first)
        self.context: Context = copy_context()  # what travels outlives the process that sent it
        self.steps = 0
        self.ears: dict[str, list[Ear]] = {}
        self.watch: Callable[[str], None] | None = None

    def post(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Do something later, whatever becomes of the process that asked."""
        self.loop.call_at(self.loop.time() + delay, callback, *args, context=self.context)

    def tell(self, subject: str, body: bytes, sender: Link) -> None:
        """Core NATS: whoever listens hears it, unless it is lost."""
        starred = subject.rpartition(".")[0] + ".*"
        *prefix, _, tenant, session, part = subject.rsplit(".", 4)
        of_one = ".".join((*prefix, "*", tenant, session, part))  # whatever its slot
        ears = (self.ears.get(each, ()) for each in (subject, starred, of_one))
        for ear in chain.from_iterable(ears):
            if ear.link is not sender and not ear.link.cut:
                if self.weather.deaf and self.rng.random() < self.weather.deaf:
                    continue
                self.post(self.weather.travel(), ear.hear, Message(subject, 0, body))

    def tell_of_silence(self, link: Link) -> None:
        """Whoever listens on a link that was cut learns that he may have missed something."""
        for ear in [each for ears in self.ears.values() for each in ears if each.link is link]:
            ear.tell_of_silence()

    def change_leader(self) -> None:
        """What is proposed is stored by the next leader, or gone; nobody is told which."""
        for stream in self.broker.streams.values():
            for settle in list(stream.proposed.values()):
                settle(self.rng.random() < 0.5)
            stream.proposed.clear()


class Ear:
    """A core subscription: hints, in the listener's own process."""

    def __init__(
        self, net: Network, link: Link, subject: str, heard: Heard, missed: Callable[[], None]
    ) -> None:
        self._net, self.link, self._subject, self._heard = net, link, subject, heard
        self._missed = missed
        self._context = copy_context()  # the listener's own process
        self._tasks: dict[asyncio.Task[None], None] = {}
        net.ears.setdefault(subject, []).append(self)

    def hear(self, message: Message) -> None:
        """A message has arrived."""
        self._net.loop.call_soon(self._start, message, context=self._context)

    def tell_of_silence(self) -> None:
        """The link was cut, and is back."""
        self._net.loop.call_soon(self._missed, context=self._context)

    def _start(self, message: Message) -> None:
        task = self._net.loop.create_task(self._hear(message), context=self._context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _hear(self, message: Message) -> None:
        await self._heard(message)

    async def close(self) -> None:
        """Hear no more."""
        ears = self._net.ears[self._subject]
        if self in ears:
            ears.remove(self)
