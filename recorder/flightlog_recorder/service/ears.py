"""What is heard of the processes that write a tenant's sessions, and for how long nothing was."""

import asyncio
import time
from collections.abc import Iterable

from flightlog.bus.protocol import Bus, Message
from flightlog.running import alive
from flightlog.wire import subject as names

# Seconds in which a process that lives names all its sessions, though one full beat be lost.
SPAN = 2 * alive.FULL_EVERY * alive.BEAT_SECONDS + alive.SILENCE


class Ears:
    """Listens to the beats of one tenant; memory is one number a session that was heard of."""

    def __init__(self, bus: Bus, tenant: str) -> None:
        self._bus, self._tenant = bus, tenant
        self._heard: dict[str, float] = {}
        self._since = time.monotonic()

    async def open(self) -> None:
        """Begin to listen. Raises `BusUnavailable`."""
        subject = names.alive_subject(self._tenant, prefix=self._bus.layout.prefix)
        await self._bus.listen(subject, self._take)

    async def unanswered(self, sessions: Iterable[str], patience: float) -> set[str]:
        """Ask who writes these sessions; those that nobody claims within `patience` seconds."""
        began, asked = time.monotonic(), set(sessions)
        for session in asked:
            await alive.ask(self._bus, self._tenant, session)
        if asked:
            await asyncio.sleep(patience)
        return {session for session in asked if self._heard.get(session, -1.0) < began}

    def is_silent(self, session: str, after: float) -> bool:
        """Whether nothing was heard for `after` seconds; of one that never was, for a span."""
        now = time.monotonic()
        if (heard := self._heard.get(session)) is not None:
            return now - heard >= after
        return now - self._since >= min(after, SPAN)

    def forget(self, after: float) -> None:
        """Drop what was heard longer ago than that, and leaves a session as silent as before."""
        oldest = time.monotonic() - max(after, SPAN)
        self._heard = {session: at for session, at in self._heard.items() if at > oldest}

    async def _take(self, message: Message) -> None:
        beat = alive.read(message.body)
        if beat is None:
            return
        now = time.monotonic()
        for session in (*beat.opened, *(beat.all or ())):
            self._heard[session] = now
        for session in beat.closed:
            self._heard.pop(session, None)
