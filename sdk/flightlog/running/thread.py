"""A harness' sync functions, each on a thread that never keeps the process from ending."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any


class _Daemons(Executor):
    """asyncio's own threads are waited for when a program ends, which a stopped one must not be."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        work = functools.partial(fn, *args, **kwargs)
        threading.Thread(target=_do, args=(work, done), name="flightlog-work", daemon=True).start()
        return done


_DAEMONS = _Daemons()


async def run(work: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call `work(**arguments)` on a thread of its own, in the caller's context.

    A thread cannot be stopped: after a cancellation it runs on, and what it returns is dropped.
    """
    in_context = functools.partial(contextvars.copy_context().run, work, **arguments)
    return await asyncio.get_running_loop().run_in_executor(_DAEMONS, in_context)


def _do(work: Callable[[], Any], done: "Future[Any]") -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(work())
    except StopIteration:  # a future could not carry it
        done.set_exception(RuntimeError("the function raised StopIteration"))
    except BaseException as exc:  # noqa: BLE001  # whoever waits for it is to have it
        done.set_exception(exc)
