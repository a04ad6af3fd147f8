"""Flightlog for harnesses without asyncio: the names of `flightlog`, without await.

`with blocking.connect() as log, log.session(key="job") as s: s.tool_call(c, run=f)`. One background
thread runs the async client, and every name means what its namesake there says. What is handed over
to be run (`call`, `run`, `make`) runs in the thread that asked, so that thread-local clients,
debuggers and signal handlers work; `on_event` and `redact` run on the background thread and must be
quick. A session may be used from many threads at once: parallel tool calls are those of the
harness' own executor. A thread cannot be stopped: after a takeover or a suspension a call ends when
its function does, and then raises. Ctrl-C while a function runs closes its call as `cancelled`, if
no signal has suspended the session. A forked process must connect again.
"""

import asyncio
import functools
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from signal import Signals
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

import flightlog
from flightlog.blobs.blob import AT_ONCE
from flightlog.bus.protocol import Message
from flightlog.event import Event
from flightlog.log import Log as AsyncLog
from flightlog.running.calling import Calling as AsyncCalling
from flightlog.running.calling import Result
from flightlog.running.errand import LoopThread
from flightlog.running.requesting import Requesting as AsyncRequesting
from flightlog.running.stopping import SIGNALS, heeding_here
from flightlog.session import Session as AsyncSession
from flightlog.state import SessionState
from flightlog.step import Call
from flightlog.subscribing.delivery import Delivery as AsyncDelivery
from flightlog.subscribing.subscription import Subscription as AsyncSubscription
from flightlog.wire.chunk import Blob
from flightlog.wire.payload import Purpose

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
S = TypeVar("S", AsyncCalling, AsyncRequesting, AsyncSubscription)
P = ParamSpec("P")
T = TypeVar("T")

_READ_AHEAD = 256  # events that one errand brings


class _Held(Generic[A]):
    """Something of the async client, and the thread on which it lives."""

    def __init__(self, thread: LoopThread, held: A, signals: Iterable[Signals] = SIGNALS) -> None:
        self.thread, self.held, self.signals = thread, held, signals


def _waiting(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Held[A], P], T]:
    @functools.wraps(method)
    def call(self: _Held[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.thread.run(method, self.held, *args, **kwargs)

    return call


def _opening(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[AsyncSession]],
) -> Callable[Concatenate[_Held[A], P], AbstractContextManager["Session"]]:
    @contextmanager
    @functools.wraps(method)
    def opened(self: _Held[A], /, *args: P.args, **kwargs: P.kwargs) -> "Generator[Session]":
        signals = cast("Iterable[Signals]", kwargs.get("signals", self.signals))
        thread = self.thread
        with heeding_here(signals) as here, thread.inside(method(self.held, *args, **kwargs)) as s:
            here.watch(s, thread.loop)
            yield Session(thread, s, signals)

    return opened


def _connecting(
    method: Callable[P, AbstractAsyncContextManager[AsyncLog]],
) -> Callable[P, AbstractContextManager["Log"]]:
    @contextmanager
    @functools.wraps(method)
    def connected(*args: P.args, **kwargs: P.kwargs) -> "Generator[Log]":
        with LoopThread() as thread, thread.inside(method(*args, **kwargs)) as log:
            yield Log(thread, log)

    return connected


def _in_steps(
    method: Callable[Concatenate[A, P], B], kind: "Callable[[LoopThread, B], C]"
) -> Callable[Concatenate[_Held[A], P], C]:
    @functools.wraps(method)
    def begun(self: _Held[A], /, *args: P.args, **kwargs: P.kwargs) -> C:
        return kind(self.thread, method(self.held, *args, **kwargs))

    return begun


class _Steps(_Held[S]):
    """An async block, as one that is entered and left here."""

    def __enter__(self) -> Self:
        self.thread.run(self.held.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ctrl-C is here what a cancellation is to a task."""
        why = asyncio.CancelledError() if isinstance(exc, KeyboardInterrupt) else exc
        self.thread.leave(self.held.__aexit__, why)


class Calling(_Steps[AsyncCalling]):
    """One attempt of a call, in two steps; see `flightlog.running.calling.Calling`."""

    @property
    def call(self) -> Call:
        """The call."""
        return self.held.call

    @property
    def arguments(self) -> Any:
        """The call's arguments; the original ones while this process still holds them."""
        return self.held.arguments

    @property
    def recorded(self) -> Result | None:
        """The result, once the block is left."""
        return self.held.recorded

    def result(self, value: Any) -> None:
        """What the tool returned; recorded when the block is left."""
        self.held.result(value)

    def error(self, exc: BaseException) -> None:
        """That the tool failed; recorded when the block is left."""
        self.held.error(exc)


class Requesting(_Steps[AsyncRequesting]):
    """One model call, in two steps; see `flightlog.running.requesting.Requesting`."""

    @property
    def request(self) -> Mapping[str, Any]:
        """What is asked of the model."""
        return self.held.request

    @property
    def purpose(self) -> Purpose:
        """Whether it is the main call or one beside it."""
        return self.held.purpose

    @property
    def message(self) -> Any:
        """The model's message as recorded, once `response` was called."""
        return self.held.message

    def response(self, message: Any) -> None:
        """The model's final message, in the provider's form; recorded when the block is left."""
        self.held.response(message)

    progress = _waiting(AsyncRequesting.progress)


class Session(_Held[AsyncSession]):
    """One logical agent run, opened by this process; see `flightlog.Session`."""

    @property
    def id(self) -> str:
        """The session's id."""
        return self.held.id

    @property
    def key(self) -> str | None:
        """The key under which the session was opened or made."""
        return self.held.key

    @property
    def state(self) -> SessionState:
        """What the log folds to now; holds nothing that is not acked."""
        return self.held.state

    @property
    def replaying(self) -> bool:
        """True until the session is restored."""
        return self.held.replaying

    @property
    def resumed_from(self) -> tuple[int | None, int]:
        """The seq of the snapshot that opening used (None: none), and how many events it read."""
        return self.held.resumed_from

    @property
    def writes(self) -> bool:
        """Whether this process opened the session as its writer; not one that has ended."""
        return self.held.writes

    append = _waiting(AsyncSession.append)
    user_message = _waiting(AsyncSession.user_message)
    model_call = _waiting(AsyncSession.model_call)
    requesting = _in_steps(AsyncSession.requesting, Requesting)
    tool_call = _waiting(AsyncSession.tool_call)
    calling = _in_steps(AsyncSession.calling, Calling)
    effect = _waiting(AsyncSession.effect)
    value = _waiting(AsyncSession.value)
    now = _waiting(AsyncSession.now)
    uuid = _waiting(AsyncSession.uuid)
    random = _waiting(AsyncSession.random)
    hook = _waiting(AsyncSession.hook)
    child = _opening(AsyncSession.child)
    attach = _waiting(AsyncSession.attach)
    checkpoint = _waiting(AsyncSession.checkpoint)
    compact = _waiting(AsyncSession.compact)
    progress = _waiting(AsyncSession.progress)
    suspend = _waiting(AsyncSession.suspend)
    wait = _waiting(AsyncSession.wait)
    end = _waiting(AsyncSession.end)


class Delivery(_Held[AsyncDelivery]):
    """One live event, until it is settled; see `flightlog.Delivery`."""

    @property
    def event(self) -> Event:
        """What happened."""
        return self.held.event

    @property
    def id(self) -> str:
        """Session and seq: the same each time it comes, for receivers that drop doubles."""
        return self.held.id

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1; crashes of subscribers count too."""
        return self.held.attempt

    ack = _waiting(AsyncDelivery.ack)
    retry = _waiting(AsyncDelivery.retry)
    dead = _waiting(AsyncDelivery.dead)
    fail = _waiting(AsyncDelivery.fail)


class Subscription(_Steps[AsyncSubscription]):
    """Live events as they come, to be iterated over; see `flightlog.Subscription`."""

    def __iter__(self) -> Iterator[Delivery]:
        deliveries = cast("AsyncGenerator[AsyncDelivery]", aiter(self.held))
        try:
            while (delivery := self.thread.run(_one, deliveries)) is not None:
                yield Delivery(self.thread, delivery)
        finally:
            self.thread.run(deliveries.aclose)

    stop = _waiting(AsyncSubscription.stop)

    def run(self, handle: Callable[[Delivery], Any]) -> None:
        """Call `handle(delivery)` for each, here, one after the other; see `Subscription.run`."""
        for delivery in self:
            try:
                handle(delivery)
            except Exception as exc:  # noqa: BLE001  users' code may raise anything
                delivery.fail(type(exc).__name__)
            else:
                delivery.ack()


async def _one(deliveries: AsyncGenerator[AsyncDelivery]) -> AsyncDelivery | None:
    return await anext(deliveries, None)


class Heard(_Held["asyncio.Queue[T]"], Generic[T]):
    """What `Log.watch` or `Log.progress` hears."""

    def get(self, timeout: float | None = None) -> T:
        """The next of it; raises `TimeoutError` when none comes for `timeout` seconds."""
        heard: T = self.thread.run(_next, self.held, timeout)
        return heard


async def _next(heard: "asyncio.Queue[T]", timeout: float | None) -> T:
    async with asyncio.timeout(timeout):
        return await heard.get()


class Log(_Held[AsyncLog]):
    """A connection to one tenant's log; see `flightlog.Log`. Safe to share between threads."""

    @property
    def tenant(self) -> str:
        """The tenant whose log this is."""
        return self.held.tenant

    session = _opening(AsyncLog.session)
    fold = _waiting(AsyncLog.fold)
    state = _waiting(AsyncLog.state)
    fork = _waiting(AsyncLog.fork)
    payload = _waiting(AsyncLog.payload)
    whole = _waiting(AsyncLog.whole)
    filled = _waiting(AsyncLog.filled)
    sessions = _waiting(AsyncLog.sessions)
    usage = _waiting(AsyncLog.usage)
    look_up = _waiting(AsyncLog.look_up)
    send = _waiting(AsyncLog.send)
    say = _waiting(AsyncLog.say)
    subscribe = _in_steps(AsyncLog.subscribe, Subscription)

    def read(self, id: str, *, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Yield a session's events in order, as `flightlog.Log.read` does."""
        events = cast("AsyncGenerator[Event]", self.held.read(id, after=after, until=until))
        return self._ahead(events, _READ_AHEAD)

    def blob(self, id: str, blob: Blob) -> Iterator[bytes]:
        """Yield what a session keeps as this blob, as `flightlog.Log.blob` does."""
        return self._ahead(cast("AsyncGenerator[bytes]", self.held.blob(id, blob)), AT_ONCE)

    def _ahead(self, source: AsyncGenerator[T], count: int) -> Iterator[T]:
        try:
            more = True
            while more:
                page, error = self.thread.run(_some, source, count)
                yield from page
                if error is not None:
                    raise error
                more = len(page) == count
        finally:
            self.thread.run(source.aclose)

    @contextmanager
    def watch(self, id: str) -> Generator[Heard[Message]]:
        """Bodies appended to the session from now on: live hints, at most once, for display."""
        with self.thread.inside(self.held.watch(id)) as heard:
            yield Heard(self.thread, heard)

    @contextmanager
    def progress(self, id: str) -> Generator[Heard[Any]]:
        """What `Session.progress` says from now on, as `flightlog.Log.progress` does."""
        with self.thread.inside(self.held.progress(id)) as heard:
            yield Heard(self.thread, heard)


async def _some(source: AsyncGenerator[T], count: int) -> tuple[list[T], Exception | None]:
    """The next ones; what fails after some good ones is raised behind them."""
    page: list[T] = []
    try:
        async for each in source:
            page.append(each)
            if len(page) == count:
                break
    except Exception as exc:  # noqa: BLE001  # raised by the reader, in its place
        return page, exc
    return page, None


connect = _connecting(flightlog.connect)
