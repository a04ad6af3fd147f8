"""Errands: a thread without a loop sends coroutines to the one that has one, and waits for them.

While it waits it runs what they ask of it: functions of the harness run in the harness' own thread.
"""

import asyncio
import contextlib
import functools
import inspect
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from flightlog.errors import FlightlogError
from flightlog.running.journal import CLOSING_SECONDS

A = TypeVar("A")
T = TypeVar("T")


class LoopThread:
    """The one background thread, with the loop on which the async client lives."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._main, name="flightlog", daemon=True)
        self.loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        self._running.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._forked:
            self.loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(CLOSING_SECONDS)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._running.set()
        await self._closing.wait()

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._process

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        """Run a coroutine there and wait here. Functions among its arguments run here, too.

        KeyboardInterrupt cancels it, as a cancellation by the harness would. Raises
        `FlightlogError` where nobody would answer.
        """
        if self._forked:
            raise FlightlogError(
                "this connection belongs to the process before the fork, which has the sessions: "
                "connect again in this one"
            )
        if threading.current_thread() is self._thread:
            raise FlightlogError("on_event runs on Flightlog's own thread and must not call back")
        if not self._thread.is_alive():
            raise FlightlogError("this connection was closed: connect again")
        return _Errand[T](self.loop).run(work, *args, **kwargs)

    def leave(
        self, leaving: Callable[..., Coroutine[Any, Any, T]], exc: BaseException | None
    ) -> T | None:
        """Leave an async block with this exception; a fork leaves that to its parent."""
        if self._forked:
            return None
        return self.run(
            leaving, type(exc) if exc else None, exc, exc.__traceback__ if exc else None
        )

    @contextlib.contextmanager
    def inside(self, block: AbstractAsyncContextManager[A]) -> Generator[A]:
        """Enter and leave an async block from here."""
        entered = self.run(block.__aenter__)
        try:
            yield entered
        except BaseException as exc:
            if not self.leave(block.__aexit__, exc):
                raise
        else:
            self.leave(block.__aexit__, None)


class _Errand(Generic[T]):
    """One coroutine, from being sent to its outcome."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._outcome: tuple[T] | BaseException | None = None

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        given = [self._at_home(arg) for arg in args]
        named = {name: self._at_home(arg) for name, arg in kwargs.items()}
        coroutine = functools.partial(work, *given, **named)
        self._loop.call_soon_threadsafe(self._start, coroutine)
        try:
            while (ask := self._asked.get()) is not None:
                ask()
        except KeyboardInterrupt:
            self._give_up()
            raise
        return self._taken()

    def _start(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._task = asyncio.create_task(self._do(coroutine))

    async def _do(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> None:
        try:
            self._outcome = (await coroutine(),)
        except BaseException as exc:  # noqa: BLE001  # SystemExit would end the loop, not the caller
            self._outcome = exc
        finally:
            self._asked.put(None)

    def _taken(self) -> T:
        outcome, self._outcome = self._outcome, None
        match outcome:
            case (value,):
                return value
            case asyncio.CancelledError() | None:
                raise FlightlogError("the connection was closed meanwhile; connect again")
            case _:
                raise outcome

    def _give_up(self) -> None:
        """Cancel it, and give it the time to close its call."""
        self._loop.call_soon_threadsafe(self._cancel)
        until = time.monotonic() + CLOSING_SECONDS
        with contextlib.suppress(queue.Empty):
            while self._asked.get(timeout=max(0.0, until - time.monotonic())) is not None:
                pass

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _at_home(self, argument: Any) -> Any:
        """A sync function becomes one that asks the waiting thread to call it."""
        if not callable(argument) or inspect.iscoroutinefunction(argument) or _is_type(argument):
            return argument

        @functools.wraps(argument)
        async def ask(*args: Any, **kwargs: Any) -> Any:
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._asked.put(
                functools.partial(self._call, answer, functools.partial(argument, *args, **kwargs))
            )
            found = await answer
            return await found if inspect.isawaitable(found) else found

        return ask

    def _call(self, answer: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
        if answer.done():
            return  # cancelled before it was begun
        try:
            told = functools.partial(_set_result, answer, work())
        except Exception as exc:  # noqa: BLE001  # it is the call's to record
            told = functools.partial(_set_exception, answer, exc)
        self._loop.call_soon_threadsafe(told)


def _is_type(argument: object) -> bool:
    return isinstance(argument, type)


def _set_result(answer: "asyncio.Future[Any]", value: Any) -> None:
    if not answer.done():
        answer.set_result(value)


def _set_exception(answer: "asyncio.Future[Any]", exc: Exception) -> None:
    if answer.done():
        return
    if isinstance(exc, StopIteration):  # a future could not carry it
        exc = RuntimeError("the function raised StopIteration")
    answer.set_exception(exc)
