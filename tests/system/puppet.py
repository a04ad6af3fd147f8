"""A harness process that runs only while the test lets it: an event loop of its own, held by hand.

A loop that is not run is a process under SIGSTOP. One whose sockets are cut and that is never run
again is a process after SIGKILL: none of its code, clean-up included, ever happens.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from flightlog import Event, FlightlogError, Log, Session, connect
from flightlog.door import OPEN_DEADLINE
from flightlog.running import stopping
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT

T = TypeVar("T")

PATIENCE = 2 * OPEN_DEADLINE  # seconds for one thing to do: whoever is stuck must fail the test


class Puppet:
    """One process, connected to the servers; `open` makes it the writer of a session."""

    def __init__(self, servers: Servers) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # the dead do not complain
        self._stack = AsyncExitStack()
        self._session: Session | None = None
        self.working: list[asyncio.Task[Any]] = []
        self.log = self.run(self._connect(servers))

    async def _connect(self, servers: Servers) -> Log:
        connecting = connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT)
        return await self._stack.enter_async_context(connecting)

    @property
    def session(self) -> Session:
        """The session that it has opened."""
        assert self._session is not None
        return self._session

    def open(self, key: str) -> Session:
        """Start or resume the session of that key."""
        opening = self.log.session(key=key, signals=())
        self._session = self.run(self._stack.enter_async_context(opening))
        return self._session

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the process until this is done; whatever else it does goes on meanwhile."""
        return self._loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin something that the process does when it next runs."""
        self.working.append(self._loop.create_task(work))

    def turn(self, count: int) -> None:
        """Run the process for some turns of its loop, then hold it wherever it is."""
        self.run(_turns(count))

    def begun(self) -> list[Event | Exception]:
        """Run until all that was started is done; what it came to, in order."""
        done = self.run(_outcomes(self.working))
        self.working.clear()
        return done

    def leave(self) -> None:
        """End in good order."""
        self.run(self._stack.aclose())
        self.bury()

    def crash(self) -> None:
        """Die: the kernel closes the connections, and nothing else happens."""
        own = {self._loop._ssock.fileno(), self._loop._csock.fileno()}  # type: ignore[attr-defined]
        for fd in set(self._loop._selector.get_map()) - own:  # type: ignore[attr-defined]
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as cut:
                cut.shutdown(socket.SHUT_RDWR)

    def bury(self) -> None:
        """Free what a process that is done holds; only when nobody looks at its session again."""
        if self._loop.is_closed():
            return
        self._loop.run_until_complete(self._stop())
        here = stopping._process.open
        here[:] = [each for each in here if each.loop is not self._loop]
        self._loop.close()

    async def _stop(self) -> None:
        for connection in (self.log.bus, self.log._ears):
            if connection is not None:
                await connection.close()
        if self.log.store is not None:
            await self.log.store.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=1) if others else None


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _outcomes(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return list(await asyncio.gather(*map(_outcome, tasks)))


async def _outcome(task: asyncio.Task[Any]) -> Any:
    try:
        return await task
    except FlightlogError as exc:
        return exc
