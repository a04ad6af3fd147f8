"""A session while it is written: its state, its appender, and what runs under its name."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Raw, Struct

from flightlog import carry
from flightlog import payload as payloads
from flightlog.appender import Appender
from flightlog.carry import Redact
from flightlog.errors import FlightlogError, SessionEnded, Suspended
from flightlog.event import Event
from flightlog.payload import SessionSuspended
from flightlog.state import ENDED, SessionState, apply
from flightlog.writer import Draft

T = TypeVar("T")
OnEvent = Callable[[Event], object]

CLOSING_SECONDS = 5.0  # how long a cancelled caller's closing event is waited for


class Journal:
    """Appends events and keeps the state that they fold to. One per opened session.

    `state` holds exactly what the log has acked, as each event is applied before its append
    returns.
    """

    def __init__(
        self, session: str, state: SessionState, *, redact: Redact | None, on_event: OnEvent | None
    ) -> None:
        self.session = session
        self.state = state
        self.redact = redact
        self.originals: dict[tuple[int | None, str], Any] = {}
        self.appender: Appender | None = None
        self.stopped: FlightlogError | None = None
        self._on_event = on_event
        self._leaving = False
        self._running: set[asyncio.Task[Any]] = set()
        self.changed = asyncio.Event()

    def appended(self, event: Event) -> None:
        """Fold an acked event in and show it to the harness; never called for a restored one."""
        self.state = apply(self.state, event)
        self.changed.set()
        if self._on_event is not None:
            self._on_event(event)

    async def record(self, payload: Struct, *, parent: int | None = None) -> Event:
        """Append a payload of the table; returns after the broker's ack."""
        name = payloads.NAMES[type(payload)]  # type: ignore[index]
        return await self.append(name, payloads.encode(payload), parent=parent)  # type: ignore[arg-type]

    async def append(
        self, type: str, payload: Raw, *, parent: int | None = None, deadline: float | None = None
    ) -> Event:
        """Append any payload; what waits behind a failed append fails with it."""
        if self.stopped is not None:
            raise self.stopped
        if self.appender is None or self.state.status in ENDED:
            raise SessionEnded(self.session)
        draft = Draft(type, payload, parent_seq=parent)
        return await self.appender.append(draft, deadline=deadline)

    async def suspend(self, payload: SessionSuspended) -> None:
        """Stop what runs, leave its calls in flight, and record that; nothing follows it."""
        if self.stopped is not None or self.state.status in ENDED:
            return
        self._cancel_running()
        await self.record(payload)
        self.stop(Suspended(self.session))

    async def quiet(self) -> None:
        """Wait until nothing is queued, so that what is appended next follows `state` directly."""
        while self.appender is not None and not self.appender.writer.idle:
            if self.appender.error is not None:
                raise self.appender.error
            await self.appender.settle(CLOSING_SECONDS)

    async def record_shielded(self, payload: Struct, *, parent: int | None = None) -> None:
        """Append although the caller is being cancelled, for at most `CLOSING_SECONDS`.

        After that the event stays queued. Failures stay silent: the cancellation is what is raised.
        """
        task = asyncio.create_task(self.record(payload, parent=parent))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task}, timeout=CLOSING_SECONDS)
        task.add_done_callback(_forget)

    def pack(self, value: object, where: str) -> Raw:
        """Encode a value as it will be stored: redacted, marked."""
        return carry.pack(value, where=where, redact=self.redact)

    async def run(self, work: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run a harness function, sync ones in a thread; `stop` cancels it.

        Cancelling the caller cancels the work and waits until it is gone.
        """
        task = asyncio.create_task(_call(work, arguments))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.cancelled() and self._leaving:
            raise self.stopped or Suspended(self.session)
        return task.result()

    def stop(self, error: FlightlogError) -> None:
        """No more appends: cancel what runs and leave its calls in flight."""
        if self.stopped is None:
            self.stopped = error
        self._cancel_running()

    def _cancel_running(self) -> None:
        self._leaving = True
        for task in list(self._running):
            task.cancel()

    @property
    def halted(self) -> bool:
        """Whether calls that are cancelled now stay in flight instead of being closed."""
        return self._leaving or (self.appender is not None and self.appender.error is not None)


async def _call(work: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if asyncio.iscoroutinefunction(work):
        return await work(**arguments)
    result = await asyncio.to_thread(work, **arguments)
    return await result if isinstance(result, Awaitable) else result


def _forget(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
