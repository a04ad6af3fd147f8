"""Walks a stream backwards in windows: which sessions spoke when. Memory is bounded by a window."""

from collections.abc import AsyncIterator, Callable

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import BusUnavailable
from flightlog.wire import subject as names
from flightlog_projector.backlog import Key

WINDOW = 20_000  # stream sequences


class Walk:
    """Reads one stream's messages for a rebuild, newest window first."""

    def __init__(
        self, bus: NatsBus, stream: str, *, moved: Callable[[], None] = lambda: None
    ) -> None:
        """`moved` is called for each page that is read."""
        self._bus, self._stream, self._moved = bus, stream, moved

    async def last_sequence(self) -> int:
        """The sequence of the stream's last message, as its leader says."""
        found = await self._bus.api(f"STREAM.INFO.{self._stream}")
        if "error" in found:
            raise BusUnavailable(self._bus.where, f"stream {self._stream} does not answer")
        return int(found["state"]["last_seq"])

    async def windows(self, above: int, top: int) -> AsyncIterator[list[tuple[Key, int]]]:
        """Sessions with a message in (`above`, `top`], newest first, with that message's sequence.

        A session shows up once in each window in which it spoke.
        """
        while top > above:
            bottom = max(above, top - WINDOW)
            found = await self._window(bottom, top)
            yield sorted(found.items(), key=lambda item: item[1], reverse=True)
            top = bottom

    async def _window(self, bottom: int, top: int) -> dict[Key, int]:
        found: dict[Key, int] = {}
        start, more = bottom + 1, True
        while more and start <= top:
            page = await self._bus.page(self._stream, ">", start)
            self._moved()
            for message in page.messages:
                if message.sequence <= top:
                    self._note(found, message.subject, message.sequence)
            start = page.messages[-1].sequence + 1 if page.messages else start
            more = page.more or await self._lags(start, top)
        return found

    def _note(self, found: dict[Key, int], subject: str, sequence: int) -> None:
        parts = names.parse_log_subject(subject, prefix=self._bus.layout.prefix)
        if parts is not None:
            key = (parts[0], parts[1])
            found[key] = max(found.get(key, 0), sequence)

    async def _lags(self, start: int, top: int) -> bool:
        """Whether the leader has a message up to `top` that the replica we read has not."""
        if start > top:
            return False
        message = await self._bus.after(self._stream, ">", start - 1, leader=True)
        return message is not None and message.sequence <= top
