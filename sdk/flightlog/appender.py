"""The thin IO around the writer: one queue, one task that drains it, one future per append."""

import asyncio
import random
from collections import deque
from collections.abc import Callable

from flightlog.bus import Bus
from flightlog.errors import BusUnavailable, FlightlogError, TooLarge
from flightlog.event import Event
from flightlog.writer import (
    HEADER_ROOM,
    Action,
    Draft,
    Failed,
    Pause,
    ReadAfter,
    Send,
    Stored,
    Writer,
)

QUEUE_BYTES = 8 << 20  # what may wait in memory; beyond it `append` waits
ANSWER_TIMEOUT = 5.0  # seconds for one answer; then the same bytes are sent again
_PAUSE_FIRST, _PAUSE_MOST = 0.01, 2.0  # seconds, doubled each time, half of it jitter

Appended = Callable[[Event], None]


class Appender:
    """Appends drafts in order. A failure is final: every later append raises the same error."""

    def __init__(
        self, bus: Bus, subject: str, stream: str, writer: Writer, appended: Appended
    ) -> None:
        self._bus, self._subject, self._stream = bus, subject, stream
        self.writer = writer
        self._appended = appended
        self._waiting: deque[tuple[Draft, asyncio.Future[Event]]] = deque()
        self._queued_bytes = 0
        self._room = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._reading: ReadAfter | None = None
        self.error: FlightlogError | None = None
        self.trouble = ""

    async def append(self, draft: Draft, *, deadline: float | None = None) -> Event:
        """Store the draft and return its event, after the broker's ack.

        `deadline` in seconds; when it passes, `BusUnavailable` is raised: a draft that was not sent
        yet is withdrawn, one that was stays at the head of the queue until it is resolved.
        """
        self._check(draft)
        future = await self._enqueue(draft)
        try:
            async with asyncio.timeout(deadline):
                return await future
        except TimeoutError:
            self._withdraw(draft, future)
            where = f"stream {self._stream}"
            why = self.trouble or "no ack in time"
            raise BusUnavailable(where, why, session=self.writer.session) from None
        except asyncio.CancelledError:
            self._withdraw(draft, future)
            raise

    def _check(self, draft: Draft) -> None:
        if self.error is not None:
            raise self.error
        limit = self._bus.max_payload - HEADER_ROOM
        if draft.size > limit:
            raise TooLarge(f"the payload of {draft.type}", draft.size, limit)

    async def _enqueue(self, draft: Draft) -> asyncio.Future[Event]:
        while self._queued_bytes and self._queued_bytes + draft.size > QUEUE_BYTES:
            async with self._room:
                await self._room.wait()
            self._check(draft)
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.append((draft, future))
        self._queued_bytes += draft.size
        self.writer.offer(draft)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain(), name="flightlog-append")
        return future

    def _withdraw(self, draft: Draft, future: asyncio.Future[Event]) -> None:
        future.cancel()
        if self.writer.withdraw(draft):
            self._waiting.remove((draft, future))
            self._queued_bytes -= draft.size

    async def overtaken(self) -> FlightlogError | None:
        """Look behind our last event for another writer's takeover, or a tombstone."""
        sequence = self.writer.expected
        while (message := await self._bus.after(self._stream, self._subject, sequence)) is not None:
            if (error := self.writer.overtaken_by(message)) is not None:
                return error
            sequence = message.sequence
        return None

    async def settle(self, deadline: float) -> bool:
        """Wait until all that is queued is resolved; False when `deadline` seconds are not enough."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=deadline)
        return self.error is None and self.writer.idle

    async def close(self) -> None:
        """Stop sending; what is unresolved stays unknown."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        action: Action = self.writer.next()
        while True:
            action = await self._do(action)
            if isinstance(action, Failed):
                await self._fail(action)
                return
            if isinstance(action, Stored):
                await self._resolve(action.events)
                if self.writer.idle:
                    return
                action = self.writer.next()

    async def _do(self, action: Action) -> Action:
        match action:
            case Send(messages=messages, expected=expected):
                answer = await self._bus.append(
                    self._subject, messages, expected=expected, timeout=ANSWER_TIMEOUT
                )
                return self.writer.answered(answer)
            case ReadAfter():
                self._reading = action
                return await self._look(action)
            case Pause(attempt=attempt, why=why):
                self.trouble = why
                await asyncio.sleep(pause(attempt))
                if self._reading is not None:
                    return self._reading
                return self.writer.next()
            case Stored() | Failed():
                return action

    async def _look(self, action: ReadAfter) -> Action:
        try:
            message = await self._bus.after(self._stream, self._subject, action.sequence)
        except BusUnavailable:
            return Pause(3, "the log cannot be read")
        if message is not None:
            self._reading = None
        return self.writer.found(message)

    async def _resolve(self, events: list[Event]) -> None:
        self.trouble = ""
        for event in events:
            draft, future = self._waiting.popleft()
            self._queued_bytes -= draft.size
            self._appended(event)
            if not future.done():
                future.set_result(event)
        async with self._room:
            self._room.notify_all()

    async def _fail(self, failed: Failed) -> None:
        if failed.final:
            self.error = failed.error
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(failed.error)
        self._queued_bytes = 0
        async with self._room:
            self._room.notify_all()


def pause(attempt: int) -> float:
    """Seconds before try `attempt` + 1: doubling, half of it jitter."""
    most: float = min(_PAUSE_FIRST * 2**attempt, _PAUSE_MOST)
    return most / 2 + random.random() * most / 2  # noqa: S311
