"""An event loop whose time is virtual and whose processes can be killed and frozen at any await."""

import asyncio
import heapq
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NEVER = 1 << 60  # callbacks until a fuse that was not set blows


class Stuck(AssertionError):
    """Nothing is left that could ever happen."""


class Owner:
    """A simulated process: whatever it started is dropped when it dies and parked when it freezes.

    A killed process runs no `finally`: this is SIGKILL, not cancellation. `fuse` counts the
    callbacks until `blow` is done to it, so that every await point can be hit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Literal["running", "frozen", "dead"] = "running"
        self.parked: list[_Handle] = []
        self.fuse = NEVER
        self.blow: Callable[[], None] = self.kill

    def kill(self) -> None:
        """SIGKILL."""
        self.state = "dead"
        self.parked.clear()

    def freeze(self) -> None:
        """SIGSTOP: its timers go on, what they call waits for `VirtualLoop.thaw`."""
        if self.state == "running":
            self.state = "frozen"


OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


class _Handle(asyncio.TimerHandle):
    """asyncio's handle without its debugging, which is half of what a callback costs."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: Any, loop: Any, context: Context | None
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self._cancelled


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: replays must be exact."""

    number: int

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in asyncio's own order; when none is ready, time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, _Handle]] = []
        self._ready: deque[_Handle] = deque()
        self._number = 0
        self._all: list[_Task] = []
        self.unheard: list[BaseException] = []
        self.set_task_factory(self._task)  # type: ignore[arg-type]
        self.set_exception_handler(self._note)

    def _task(
        self, _: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> _Task:
        task = _Task.__new__(_Task)
        task.number = len(self._all)  # `__init__` hashes it already
        task.__init__(coro, loop=self, **options)  # type: ignore[misc]
        self._all.append(task)
        return task

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that no caller could see: in a callback, or in a task nobody waits for."""
        if (exc := context.get("exception")) is not None and "never retrieved" not in str(
            context.get("message")
        ):
            self.unheard.append(exc)

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Handle:
        timer = _Handle(callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, timer))
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, _: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """A thread that takes no time: `to_thread` stays deterministic."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as exc:  # noqa: BLE001 it is the caller's, as with a real thread
            done.set_exception(exc)
        return done

    def _run_once(self) -> None:
        ready = self._ready
        while not self._stopping:  # type: ignore[attr-defined]
            if not ready:
                self._wait()
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is not None:
                owner.fuse -= 1
                if not owner.fuse:
                    owner.blow()
                if owner.state != "running":
                    if owner.state == "frozen":
                        owner.parked.append(handle)
                    continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except Exception as exc:  # noqa: BLE001 as asyncio's own handles do
                self.unheard.append(exc)

    def _wait(self) -> None:
        timers, ready = self._timers, self._ready
        while timers:
            when, _, timer = heapq.heappop(timers)
            if timer._cancelled:
                continue
            self._now = max(self._now, when)
            ready.append(timer)
            while timers and timers[0][0] <= self._now:
                ready.append(heapq.heappop(timers)[2])
            return
        raise Stuck("nothing is ready and no timer is set")

    def thaw(self, owner: Owner) -> None:
        """SIGCONT."""
        if owner.state == "frozen":
            owner.state = "running"
            self._ready.extend(owner.parked)
            owner.parked.clear()

    def waiting(self) -> str:
        """Where each task waits, for who looks for the reason."""
        places = [_awaits(task) for task in self._all if not task.done()]
        return "\n".join(" < ".join(reversed(each)) for each in places)

    def bury(self) -> None:
        """Close what never finished; the code of dead processes runs here, to no effect."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is started at a funeral is never awaited
            for task in self._all:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _end(task.get_coro())
            self._all.clear()
        self._ready.clear()
        self._timers.clear()
        self.close()


def _awaits(task: "asyncio.Task[Any]") -> list[str]:
    found: list[str] = []
    at: Any = task.get_coro()
    while at is not None and getattr(at, "cr_frame", None) is not None:
        found.append(f"{at.__qualname__}:{at.cr_frame.f_lineno}")
        at = at.cr_await
    return found


class _Buried(BaseException):
    """Thrown into what never finished; `close()` would not reach into asynchronous generators."""


def _end(coro: Any) -> None:
    for _ in range(50):
        try:
            coro.throw(_Buried())
        except BaseException:  # noqa: BLE001 whatever a dead process says at its own funeral
            return
