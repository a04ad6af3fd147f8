"""A session while it is written: its state, its appender, and what runs under its name."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from typing import Any, TypeVar

from msgspec import UNSET, Raw, Struct

from flightlog import clock
from flightlog.blobs import held
from flightlog.errors import (
    BlobCorrupt,
    BlobMissing,
    BusUnavailable,
    FlightlogError,
    InvalidValue,
    SessionEnded,
    Suspended,
    TooLarge,
)
from flightlog.event import Event
from flightlog.running import thread
from flightlog.running.ruling import Owed
from flightlog.state import ENDED, SessionState, apply
from flightlog.wire import carry
from flightlog.wire import payload as payloads
from flightlog.wire.carry import Redact
from flightlog.wire.chunk import Blob
from flightlog.wire.layout import BLOB_STREAM
from flightlog.wire.payload import SessionSuspended
from flightlog.writing.appender import Appender
from flightlog.writing.draft import Draft
from flightlog.writing.holding import Holding

T = TypeVar("T")
OnEvent = Callable[[Event], object]

# What a payload is refused for as it is, before any event of it is stored.
UNRECORDABLE = (InvalidValue, TooLarge, BlobMissing, BlobCorrupt)
CLOSING_SECONDS = 5.0  # how long a caller that is leaving waits for its last event
_log = logging.getLogger("flightlog")


class Journal:
    """Appends events and keeps the state that they fold to. One per opened session.

    `state` holds exactly what the log has acked, as each event is applied before its append
    returns. `stopped` is why this process appends nothing more.
    """

    def __init__(
        self,
        session: str,
        state: SessionState,
        *,
        redact: Redact | None,
        on_event: OnEvent | None,
        holding: Holding | None = None,
    ) -> None:
        self.session = session
        self.state = state
        self.redact = redact
        self.holding = holding
        self.originals: dict[tuple[int | None, str], Any] = {}
        self.starting: set[Hashable] = set()
        self.children: set[Journal] = set()
        self.appender: Appender | None = None
        self.stopped: FlightlogError | None = None
        self.changed = asyncio.Event()
        self._on_event = on_event
        self._leaving = False
        self._running: set[asyncio.Task[Any]] = set()
        self._stowing: set[asyncio.Future[None]] = set()
        self._unfinished: set[asyncio.Task[Any]] = set()

    def appended(self, event: Event) -> None:
        """Fold an acked event in and show it to the harness; never called for a restored one."""
        before, self.state = self.state, apply(self.state, event)
        if self.holding is not None and self.state.blobs is not UNSET:
            self.state = self.holding.after(before, event, self.state)
        self.changed.set()
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001  # the event is stored: its append must return
            _log.exception("on_event failed at seq %d of session %s", event.seq, self.session)

    async def record(self, payload: Struct, *, parent: int | None = None) -> Event:
        """Append a payload of the table; returns after the broker's ack."""
        name, raw = encoded(payload)
        return await self.append(name, raw, parent=parent)

    def know(self, blob: Blob) -> None:
        """That this process has stored the blob: payloads may refer to it."""
        if self.holding is not None:
            self.holding.know(blob)

    def is_crowded(self, payload: Struct) -> bool:
        """Whether the payload is too large for its event, whatever leaves it for blobs."""
        return self.holding is not None and self.holding.is_crowded(*encoded(payload))

    async def record_owed(self, owed: Sequence[Owed]) -> None:
        """Append payloads in their order, those that are joined all or none."""
        self.check()
        drafts = [
            await self._stowed(
                Draft(*encoded(each.payload), parent_seq=each.parent_seq, joined=each.joined)
            )
            for each in owed
        ]
        self.check()
        await asyncio.gather(*map(self._send, drafts))

    async def append(
        self, type: str, payload: Raw, *, parent: int | None = None, deadline: float | None = None
    ) -> Event:
        """Append any payload; what waits behind a failed append fails with it."""
        self.check()
        until = None if deadline is None else clock.elapsed() + deadline
        draft = await self._stowed(Draft(type, payload, parent_seq=parent), deadline)
        self.check()
        left = None if until is None else max(0.0, until - clock.elapsed())
        return await self._send(draft, left)

    async def _stowed(self, draft: Draft, deadline: float | None = None) -> Draft:
        """The draft, what it refers to being stored: a crash leaves no event without its blobs."""
        if self.holding is None or not self.holding.takes(draft):
            return draft
        stowing = asyncio.get_running_loop().create_future()
        self._stowing.add(stowing)
        try:
            async with asyncio.timeout(deadline):
                return await self.holding.stow(draft, self.state)
        except TimeoutError:
            why = "what the event refers to was not stored, or found, in time"
            raise BusUnavailable(f"stream {BLOB_STREAM}", why, session=self.session) from None
        finally:
            self._stowing.discard(stowing)
            stowing.set_result(None)

    def check(self) -> None:
        """Raise if this process appends nothing more to the session."""
        if self.stopped is not None:
            raise self.stopped
        if self.appender is None or self.state.status in ENDED:
            raise SessionEnded(self.session)

    async def _send(self, draft: Draft, deadline: float | None = None) -> Event:
        if self.appender is None:
            raise SessionEnded(self.session)
        try:
            return await self.appender.append(draft, deadline=deadline)
        except FlightlogError:
            if self._failed is not None:
                self.stop(self._failed)
            raise

    async def begin(
        self,
        start: Coroutine[Any, Any, Event],
        closing: Struct,
        *,
        name: Hashable | None = None,
    ) -> Event:
        """Append the start of a call. A caller that is cancelled meanwhile leaves it closed.

        `name` is among `starting` until what became of the start is known.
        """
        starting = self._go(start)
        if name is not None:
            self.starting.add(name)
            starting.add_done_callback(lambda _: self.starting.discard(name))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if not self.halted:
                await self.shielded(self._close(starting, closing))
            raise

    async def _close(self, starting: "asyncio.Task[Event]", closing: Struct) -> None:
        started = await starting
        await self.record(closing, parent=started.seq)

    async def suspend(self, payload: SessionSuspended) -> None:
        """Stop what runs, leave its calls in flight, and record that. Idempotent."""
        if self.stopped is None and self.appender is not None and self.state.status not in ENDED:
            self.halt()
            await self._finish(payload, Suspended(self.session))

    async def end(self, payload: payloads.SessionEnded) -> None:
        """Record the end of the session and stop what runs."""
        await self._finish(payload, SessionEnded(self.session))
        self.halt()

    async def _finish(self, payload: Struct, error: FlightlogError) -> None:
        """Append this writer's last event: nothing is queued behind it, unless it is refused."""
        self.check()
        draft = await self._stowed(Draft(*encoded(payload)))
        self.check()
        self.stopped = error
        try:
            await asyncio.shield(self._go(self._send(draft)))
        except FlightlogError:
            self.stopped = self._failed
            self._leaving = self.stopped is not None
            raise

    async def outlive(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work that a cancelled caller sees out, for at most `CLOSING_SECONDS`.

        So the state that it finds next knows of the work. One that is stopped does not wait.
        """
        task = self._go(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self.halted:
                await self._seen_out(task)
            raise

    async def quiet(self) -> None:
        """Wait until what is queued now is resolved, so that `state` holds it."""
        if self._stowing:
            await asyncio.wait(set(self._stowing))
        if self.appender is not None:
            await self.appender.caught_up()

    async def shielded(self, work: Coroutine[Any, Any, object]) -> None:
        """Do work although the caller is being cancelled, for at most `CLOSING_SECONDS`.

        After that it goes on by itself. Its failures stay silent: the caller is leaving anyway.
        """
        await self._seen_out(self._go(work))

    async def _seen_out(self, task: "asyncio.Task[Any]") -> None:
        """Wait for it; a cancellation meanwhile is raised in the end."""
        until = clock.elapsed() + CLOSING_SECONDS
        cancelled: asyncio.CancelledError | None = None
        while not task.done() and (left := until - clock.elapsed()) > 0:
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError as exc:
                cancelled = exc
        if cancelled is not None:
            raise cancelled

    def _go(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        task.add_done_callback(_heed)
        return task

    async def unpacked(self, raw: Raw) -> Any:
        """A value that the log holds, what lies in blobs in its place."""
        if self.holding is None:
            return carry.unpack(raw)
        known = held.NOTHING if self.state.held is UNSET else self.state.held
        return await self.holding.unpacked(raw, known)

    def pack(self, value: object, where: str) -> Raw:
        """Encode a value as it will be stored: redacted, marked."""
        return carry.pack(value, where=where, redact=self.redact)

    def text(self, said: str | None) -> str | None:
        """A text as it will be stored: redacted."""
        return self.redact(said) if self.redact is not None and said is not None else said

    async def run(self, work: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run a harness function, sync ones in a thread; `stop` cancels it.

        Cancelling the caller cancels the work and waits until it is gone. A thread cannot be
        stopped: it runs on, and what it returns is dropped.
        """
        task = asyncio.create_task(_call(work, arguments))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            _heed(task)
            raise
        if task.cancelled() and self.halted:
            raise self.why
        return task.result()

    def stop(self, error: FlightlogError) -> None:
        """No more appends: cancel what runs and leave its calls in flight."""
        if self.stopped is None:
            self.stopped = error
        self.changed.set()
        self.halt()

    def halt(self) -> None:
        """Cancel what runs, children's work first: all of it stays in flight. Idempotent."""
        self._leaving = True
        for child in list(self.children):
            child.halt()
        for task in list(self._running):
            task.cancel()

    @property
    def halted(self) -> bool:
        """Whether calls that are cancelled now stay in flight instead of being closed."""
        return self._leaving or self._failed is not None

    @property
    def why(self) -> FlightlogError:
        """What a call is told that cannot go on here."""
        return self.stopped or self._failed or Suspended(self.session)

    @property
    def _failed(self) -> FlightlogError | None:
        return self.appender.error if self.appender is not None else None

    async def leave(self, reason: str) -> None:
        """Record that the session waits, unless its last event is written; see all queued stored.

        Gives up after `CLOSING_SECONDS`: what was sent by then stays unknown.
        """
        if self.appender is None:
            return
        try:
            await self.shielded(self._leave(reason, self.appender))
        finally:
            for task in list(self._unfinished):
                task.cancel()
            await self.appender.close()

    async def _leave(self, reason: str, appender: Appender) -> None:
        await self.suspend(SessionSuspended(reason=reason))
        await appender.settle(CLOSING_SECONDS)


def encoded(payload: Struct) -> tuple[str, Raw]:
    """A payload's type and JSON. Raises `InvalidValue` for one that the table cannot hold."""
    name = payloads.NAMES[type(payload)]  # type: ignore[index]
    try:
        raw = payloads.encode(payload)  # type: ignore[arg-type]
    except (TypeError, ValueError) as exc:
        raise InvalidValue(name, "a name or a text in it is not valid Unicode") from exc
    check_fits(name, raw)
    return name, raw


def check_fits(type: str, raw: Raw) -> None:
    """Raise `InvalidValue` for a payload of the table that no reader could read."""
    if type in payloads.TYPES and isinstance(payloads.decode(type, raw), payloads.Unknown):
        raise InvalidValue(type, "its fields do not fit the wire's table")


async def _call(work: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(work):
        return await work(**arguments)
    result = await thread.run(work, arguments)
    return await result if isinstance(result, Awaitable) else result


def _heed(task: "asyncio.Task[Any]") -> None:
    """Take note of a failure that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
