"""Beats: a process that writes sessions says so every few seconds. Hints, never a fence."""

import asyncio
import contextlib
import itertools
import os
import socket

import msgspec
from msgspec import Struct

from flightlog import clock
from flightlog.bus.protocol import Bus, Listening, Message
from flightlog.errors import FlightlogError
from flightlog.wire import subject as names

BEAT_SECONDS = 5.0
SILENCE = 3 * BEAT_SECONDS  # seconds; nobody is taken for dead before
ASK_PATIENCE = 0.5  # seconds for whoever writes a session that looks left to say so
FULL_EVERY = 6  # beats: each such one names all sessions


class Beat(Struct, frozen=True, omit_defaults=True):
    """What a process says of itself: sessions it opened and closed since the last beat.

    Every sixth beat `all` lists every session it writes. A beat with `asks` is a question: who
    writes that session beats at once.
    """

    process: str = ""
    opened: list[str] = []
    closed: list[str] = []
    all: list[str] | None = None
    asks: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Beat).decode


class Beats:
    """One process' beats for one tenant, while it writes at least one session."""

    def __init__(self, bus: Bus, tenant: str) -> None:
        self._bus = bus
        self._subject = names.alive_subject(tenant, prefix=bus.layout.prefix)
        self.process = f"{socket.gethostname()}:{os.getpid()}:{clock.bits(16):x}"
        self._writing: set[str] = set()
        self._opened: list[str] = []
        self._closed: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def opened(self, session: str) -> None:
        """This process writes the session now."""
        self._writing.add(session)
        self._opened.append(session)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="flightlog-beats")

    def closed(self, session: str) -> None:
        """This process no longer writes the session."""
        self._writing.discard(session)
        self._closed.append(session)

    async def close(self) -> None:
        """Stop beating, and say which sessions are closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            await self._beat(full=False)

    async def _run(self) -> None:
        listening = await self._listen()
        try:
            for count in itertools.count():
                if self._writing or self._closed:
                    await self._beat(full=count % FULL_EVERY == 0)
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            await listening.close()

    async def _listen(self) -> Listening:
        while True:
            with contextlib.suppress(FlightlogError):
                return await self._bus.listen(self._subject, self._heard)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self, *, full: bool) -> None:
        beat = Beat(
            process=self.process,
            opened=self._opened,
            closed=self._closed,
            all=sorted(self._writing) if full else None,
        )
        self._opened, self._closed = [], []
        await self._bus.say(self._subject, _encode(beat))

    async def _heard(self, message: Message) -> None:
        beat = read(message.body)
        if beat is not None and beat.asks in self._writing:
            await self._beat(full=True)


def read(body: bytes) -> Beat | None:
    """A beat, or None for anything else."""
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


async def ask(bus: Bus, tenant: str, session: str) -> None:
    """Ask who writes the session: whoever does beats at once."""
    subject = names.alive_subject(tenant, prefix=bus.layout.prefix)
    await bus.say(subject, _encode(Beat(asks=session)))


async def is_live(bus: Bus, tenant: str, session: str, *, patience: float) -> bool:
    """Ask whether a process writes the session; False after `patience` seconds of silence."""
    subject = names.alive_subject(tenant, prefix=bus.layout.prefix)
    heard = asyncio.Event()

    async def listen(message: Message) -> None:
        beat = read(message.body)
        if beat is not None and session in [*beat.opened, *(beat.all or [])]:
            heard.set()

    listening = await bus.listen(subject, listen)
    try:
        await ask(bus, tenant, session)
        await asyncio.wait_for(heard.wait(), patience)
    except TimeoutError:
        return False
    finally:
        await listening.close()
    return True
