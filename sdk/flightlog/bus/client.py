"""nats-py's client, with a short way for what appends and reads do: ask, and be answered.

nats-py itself takes a timer, a task for the answer and a turn of its flusher for each request.
"""

import asyncio
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import nats.aio.client
from msgspec import Struct
from nats import errors
from nats.aio.msg import Msg
from nats.aio.transport import Transport

from flightlog.bus import frame
from flightlog.bus.parser import Parser, stored
from flightlog.bus.protocol import Message

_NO_RESPONDERS = "503"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class _Asked(Struct, frozen=True, eq=False):
    """A request that waits for its answer until `due`, a time of the loop's clock."""

    subject: str
    answer: "asyncio.Future[Msg]"
    due: float


class Client(nats.aio.client.Client):
    """One connection. What is asked in one turn of the loop is written together at its end."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[bytes, _Asked] = {}  # by the subject that the answer comes on
        self._numbers: Iterator[int] = itertools.count(1)
        self._alarm: asyncio.TimerHandle | None = None
        self._leaving: list[bytes] = []  # frames to be written at the end of this turn of the loop
        self._ps = self._parser = Parser(self)

    @property
    def server_version(self) -> tuple[int, ...]:
        """The connected server's version; nats-py's own takes 1 ms, to compile its expression."""
        found = _VERSION.match(str(self._server_info.get("version")))
        return tuple(int(part) for part in found.groups()) if found else (0, 0, 0)

    async def ask(
        self,
        subject: str,
        body: bytes,
        *,
        timeout: float,
        headers: bytes = b"",
        before: Sequence[bytes] = (),
    ) -> Msg:
        """Write the frames `before` and a request in one go, and wait for its answer.

        While the connection is down nothing is kept to be sent later: it raises at once.
        """
        if len(headers) + len(body) > self.max_payload:
            raise errors.MaxPayloadError  # sent, it would close the connection for good
        inbox = await self._new_inbox()
        asked = self._expect(inbox, subject, timeout)
        try:
            asking = frame.publication(subject, body, headers=headers, reply=inbox)
            self._write([*before, asking])
            found = await asked.answer
        finally:
            del self._asked[inbox]
        if found.headers and found.headers.get("Status") == _NO_RESPONDERS:
            raise errors.NoRespondersError
        return found

    async def ask_page(
        self, subject: str, query: bytes, *, timeout: float
    ) -> tuple[list[Message], Msg]:
        """A request that is answered by stored messages and, at their end, by a status."""
        inbox = await self._new_inbox()
        asked = self._expect(inbox, subject, timeout)
        page = self._parser.pages[inbox] = list[Message]()
        try:
            self._write([frame.publication(subject, query, reply=inbox)])
            return page, await asked.answer
        finally:
            del self._asked[inbox], self._parser.pages[inbox]

    async def _new_inbox(self) -> bytes:
        if self._resp_sub_prefix is None:
            await self._init_request_sub()
        return b"%b%x" % (bytes(self._resp_sub_prefix or b""), next(self._numbers))

    def _expect(self, inbox: bytes, subject: str, timeout: float) -> _Asked:
        loop = asyncio.get_running_loop()
        asked = _Asked(subject, loop.create_future(), loop.time() + timeout)
        self._asked[inbox] = asked
        self._set_alarm(asked.due)
        return asked

    def _set_alarm(self, due: float) -> None:
        """One timer for all that waits: set for the first that is due, and again when it rings."""
        if self._alarm is not None:
            if self._alarm.when() <= due:
                return
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(due, self._rang, due)

    def _rang(self, now: float) -> None:
        self._alarm = None
        for asked in list(self._asked.values()):
            if asked.due <= now:
                give_up(asked.answer, errors.TimeoutError())
        left = [asked.due for asked in self._asked.values() if asked.due > now]
        if left:
            self._set_alarm(min(left))

    def _write(self, frames: Sequence[bytes]) -> None:
        """Write at the end of this turn of the loop, with what else is asked in it.

        Each write is a system call that wakes the server: 32 sessions answered in one turn took
        twice the time when each wrote for itself.
        """
        if not self.is_connected:
            closed = self.is_closed
            raise errors.ConnectionClosedError if closed else errors.ConnectionReconnectingError
        if not self._leaving:
            asyncio.get_running_loop().call_soon(self._turn_ended, self._transport)
        self._leaving += frames

    def _turn_ended(self, transport: Transport | None) -> None:
        frames, self._leaving = self._leaving, []
        if transport is not None and transport is self._transport and self.is_connected:
            transport.writelines([*self._pending, *frames])
            self._pending, self._pending_data_size = [], 0

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        """Hand an answer to who waits for it at once; through another task it comes a turn late."""
        asked, page = self._asked.get(subject), self._parser.pages.get(subject)
        if asked is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        elif page is not None and (message := stored(headers or b"", data)):
            page.append(message)
        elif not asked.answer.done():
            found = self._build_message(sid, subject, reply, data, _fields(headers))
            asked.answer.set_result(found)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """nats-py's own parser goes one character at a time."""
        return _fields(headers)

    async def _send_ping(self, future: "asyncio.Future[Any] | None" = None) -> None:
        """Keep a ping behind what is pending: sent ahead of it, its pong proves nothing (2.15)."""
        await self._flush_pending(force_flush=True)
        await super()._send_ping(future)

    def give_up_requests(self, exc: Exception, *, subject: str | None = None) -> bool:
        """Fail what waits for an answer: it will not come, and nothing else would say so.

        With a `subject`, in whatever case, only what was asked there. False if nobody waits.
        """
        waiting = [
            asked
            for asked in self._asked.values()
            if subject is None or asked.subject.lower() == subject.lower()
        ]
        for asked in waiting:
            give_up(asked.answer, exc)
        return bool(waiting)

    def drop_transport(self) -> None:
        """Close the socket: nats-py leaves it open when it reconnects or fails to connect."""
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]


def give_up(future: "asyncio.Future[Any]", exc: Exception) -> None:
    """Fail a future that still waits; nobody need be there to see it."""
    if not future.done():
        future.set_exception(exc)
        future.exception()  # seen, even if nobody gets to await it any more


def _fields(headers: bytes | None) -> dict[str, str] | None:
    if not headers:
        return None
    first, *lines = headers.decode("utf-8", "replace").split("\r\n")
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    # nats-py's own name for the status line, so a stored header of that name must not pass.
    found.pop("Status", None)
    status = first[9:12]
    return found | {"Status": status, "Description": first[13:]} if status else found
