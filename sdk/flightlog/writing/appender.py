"""The thin IO around the writer: one queue, one future per append, one at a time who sends.

Who appends to an idle queue sends himself: a task for it would come two turns of the loop later.
The rest is a task's: what the first answer does not settle, what is queued meanwhile, drafts that
are joined, and all of it while appends come in groups: a turn later there is more to send at once.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from flightlog import clock
from flightlog.bus.answer import Unclear
from flightlog.bus.patience import ANSWER_TIMEOUT, pause
from flightlog.bus.protocol import Bus
from flightlog.errors import BusUnavailable, FlightlogError, NotPermitted, TooLarge
from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.writing.draft import Offered
from flightlog.writing.writer import (
    HEADER_ROOM,
    Action,
    Failed,
    Pause,
    ReadAfter,
    Send,
    Stored,
    Writer,
)

QUEUE_BYTES = 8 << 20  # what may wait in memory; beyond it `append` waits
Appended = Callable[[Event], None]

_log = logging.getLogger("flightlog")


class Appender:
    """Appends drafts in order. A failure is final: every later append raises the same error."""

    def __init__(
        self, bus: Bus, subject: str, stream: str, writer: Writer, appended: Appended
    ) -> None:
        self._bus, self._subject, self._stream = bus, subject, stream
        self.writer = writer
        self._appended = appended
        self._waiting: deque[tuple[Offered, asyncio.Future[Event]]] = deque()
        self._queued_bytes = 0
        self._moved = asyncio.Event()  # set whenever something left the queue
        self._task: asyncio.Task[None] | None = None
        self._leading: asyncio.Timeout | None = None  # while an append sends itself
        self._grouped = False  # what was stored last left as a batch
        self.error: FlightlogError | None = None
        self.trouble = ""

    async def append(self, draft: Offered, *, deadline: float | None = None) -> Event:
        """Store the draft and return its event, after the broker's ack.

        `deadline` in seconds; when it passes, `BusUnavailable` is raised: a draft that was not sent
        yet is withdrawn, one that was stays at the head of the queue until it is resolved.
        """
        self._check(draft)
        if deadline is None:
            return await self._stored(draft)
        try:
            async with asyncio.timeout(deadline):
                return await self._stored(draft)
        except TimeoutError:
            raise self._unavailable(self.trouble or "no ack in time") from None

    def _unavailable(self, why: str) -> BusUnavailable:
        return BusUnavailable(f"stream {self._stream}", why, session=self.writer.session)

    async def _stored(self, draft: Offered) -> Event:
        while self._queued_bytes and self._queued_bytes + draft.size > QUEUE_BYTES:
            await self._next_move()
            self._check(draft)
        future = self._enqueue(draft)
        try:
            if self._sending:
                return await future
            if self._grouped or draft.joined:
                self._go_on(None)
            else:
                await self._lead()
            return await future
        except asyncio.CancelledError:
            self._withdraw(draft, future)
            raise

    def _check(self, draft: Offered) -> None:
        if self.error is not None:
            raise self.error
        limit = self._bus.max_payload - HEADER_ROOM
        if draft.size > limit:
            raise TooLarge(f"{_largest(draft)} of {draft.type}", draft.size, limit)

    def _enqueue(self, draft: Offered) -> asyncio.Future[Event]:
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting.append((draft, future))
        self._queued_bytes += draft.size
        self.writer.offer(draft)
        return future

    def _withdraw(self, draft: Offered, future: asyncio.Future[Event]) -> None:
        future.cancel()
        if future.cancelled() and self.writer.withdraw(draft):
            self._waiting.remove((draft, future))
            self._queued_bytes -= draft.size
            self._moved.set()

    async def overtaken(self) -> FlightlogError | None:
        """Look behind our last event for another writer's takeover, or a tombstone."""
        sequence = self.writer.expected
        while (message := await self._bus.after(self._stream, self._subject, sequence)) is not None:
            if (error := self.writer.overtaken_by(message)) is not None:
                return error
            sequence = message.sequence
        return None

    async def caught_up(self) -> None:
        """Wait until what is queued now is resolved, one way or the other."""
        last = self._waiting[-1][0] if self._waiting else None
        while any(draft is last for draft, _ in self._waiting):
            await self._next_move()

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def settle(self, deadline: float) -> bool:
        """Wait until all that is queued is resolved; False if `deadline` seconds are not enough."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                while self._owing:
                    await self._next_move()
        return self.error is None and self.writer.idle

    async def close(self) -> None:
        """Stop sending for good; what is unresolved stays unknown, and whoever waits is told so."""
        task = self._task if self._task is not None and not self._task.done() else None
        if task is not None:
            task.cancel()
        if self._leading is not None:
            self._leading.reschedule(clock.elapsed())
        why = "the session was left before an ack came"
        self._settle(Failed(self.error or self._unavailable(why)))
        if task is not None:
            await asyncio.wait([task])

    @property
    def _owing(self) -> bool:
        return not self.writer.idle and self.error is None

    @property
    def _sending(self) -> bool:
        return self._leading is not None or (self._task is not None and not self._task.done())

    async def _lead(self) -> None:
        """Send what is queued from the caller's own task, once."""
        try:
            async with asyncio.timeout(None) as self._leading:
                action = await self._do(self.writer.next())
        except TimeoutError:  # closed meanwhile: whoever waits was told
            return
        except asyncio.CancelledError:
            self._go_on(self.writer.answered(Unclear("who sent it was cancelled")))
            raise
        finally:
            self._leading = None
        self._go_on(action)

    def _go_on(self, action: Action | None) -> None:
        """Settle what can be, and leave the rest to a task."""
        if isinstance(action, Stored | Failed):
            self._settle(action)
            action = None
        if self._owing:
            self._task = asyncio.create_task(self._drain(action), name="flightlog-append")

    async def _drain(self, action: Action | None) -> None:
        while self._owing:
            action = await self._do(action or self.writer.next())
            if isinstance(action, Stored | Failed):
                self._settle(action)
                action = None

    def _settle(self, action: Stored | Failed) -> None:
        try:
            if isinstance(action, Failed):
                self._fail(action)
            else:
                self._resolve(action.events)
        except Exception as exc:  # noqa: BLE001 as in `_do`
            self._fail(self._defect(exc))
        self._moved.set()

    def _defect(self, exc: Exception) -> Failed:
        _log.error("appending to session %s failed", self.writer.session, exc_info=exc)
        return Failed(self._unavailable(f"{type(exc).__name__} in the appender"))

    async def _do(self, action: Action) -> Action:
        try:
            match action:
                case Send():
                    return await self._send(action)
                case ReadAfter():
                    return await self._look(action)
                case Pause(attempt=attempt, why=why):
                    self.trouble = why
                    await asyncio.sleep(pause(attempt))
                    return self.writer.next()
                case Stored() | Failed():
                    return action
        except Exception as exc:  # noqa: BLE001 a defect of ours: whoever waits must hear of it
            return self._defect(exc)

    async def _send(self, action: Send) -> Action:
        try:
            answer = await self._bus.append(
                self._subject, action.messages, expected=action.expected, timeout=ANSWER_TIMEOUT
            )
        except NotPermitted as exc:
            return Failed(exc)
        return self.writer.answered(answer)

    async def _look(self, action: ReadAfter) -> Action:
        try:
            message = await self._bus.after(
                self._stream, self._subject, action.sequence, leader=action.leader
            )
        except BusUnavailable:
            return Pause(3, "the log cannot be read")
        except NotPermitted as exc:
            return Failed(exc)
        return self.writer.found(message)

    def _resolve(self, events: list[Event]) -> None:
        self.trouble = ""
        self._grouped = len(events) > 1
        for event in events:
            draft, future = self._waiting.popleft()
            self._queued_bytes -= draft.size
            if not future.done():
                future.set_result(event)
            self._appended(event)  # still before the append returns, which needs the loop

    def _fail(self, failed: Failed) -> None:
        if failed.final:
            self.error = failed.error
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(failed.error)
                future.exception()  # seen: who sends it himself is not there to await it
        self._queued_bytes = 0


def _largest(draft: Offered) -> str:
    """The payload's largest field, by name; types of our own may hold anything."""
    try:
        fields = msgspec.json.decode(draft.payload, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "the payload"
    if draft.type not in payloads.TYPES or not fields:
        return "the payload"
    return max(fields, key=lambda name: len(fields[name]))
