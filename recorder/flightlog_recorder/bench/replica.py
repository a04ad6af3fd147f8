"""A projector process that is measured from outside: its metrics, its memory, its backlog."""

import asyncio
import socket
import sys
import tempfile
import urllib.request
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from flightlog import FlightlogError
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.embedded.child import Child

DEADLINE = 120.0  # seconds for anything that is waited for
_POLL = 0.02  # seconds; one look costs the broker well under a millisecond
_SLOWEST = 2_000  # events a second that a projector folds at least
_STOP = 15.0  # seconds to drain
_DURABLE = "projector"


class BenchFailed(FlightlogError):
    """A process that is measured did not do its part."""


class Replica:
    """One running projector."""

    def __init__(self, child: Child, port: int, log: Path) -> None:
        self._child, self._port, self._log = child, port, log

    async def ready(self) -> None:
        """Wait until its catalog is whole: what was there before is projected."""
        try:
            await _until(lambda: self._answers("/readyz"))
        except TimeoutError:
            said = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise BenchFailed(f"the projector is not ready: {said or 'it said nothing'}") from None

    async def metric(self, name: str) -> float:
        """The sum of a metric over all its labels."""
        text = await asyncio.to_thread(self._get, "/metrics")
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return sum(float(value) for key, value in rows if key.split("{")[0] == name)

    def peak_memory(self) -> float:
        """MiB that the process had at most (Linux)."""
        status = Path(f"/proc/{self._child.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    async def _answers(self, path: str) -> bool:
        try:
            await asyncio.to_thread(self._get, path)
        except OSError:
            return False
        return True

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
            return str(answer.read().decode())


@asynccontextmanager
async def running(bed: Bed, count: int = 1) -> AsyncGenerator[list[Replica]]:
    """Run so many projectors for the length of a block; they drain at its end."""
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as home:
        ports = [_free_port() for _ in range(count)]
        logs = [Path(home) / f"{port}.log" for port in ports]
        children = [_start(bed, *each) for each in zip(ports, logs, strict=True)]
        try:
            yield [Replica(*each) for each in zip(children, ports, logs, strict=True)]
        finally:
            for child in children:
                await asyncio.to_thread(child.stop, deadline=_STOP)


def _start(bed: Bed, port: int, log: Path) -> Child:
    environment = {**bed.servers.environment(), "FLIGHTLOG_HTTP_PORT": str(port)}
    return Child([sys.executable, "-m", "flightlog_projector"], log=log, environment=environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def waiting(bed: Bed) -> int:
    """How many messages no replica has covered and acknowledged yet."""
    return sum([await bed.floor.uncovered(each, _DURABLE) for each in bed.log.bus.layout.streams])


async def covered(bed: Bed) -> None:
    """Wait until no message waits."""

    async def done() -> bool:
        return await waiting(bed) == 0

    await _until(done)


async def drained(bed: Bed, total: int) -> float:
    """Seconds from the first message that is taken until none of `total` waits."""

    async def begun() -> bool:
        return await waiting(bed) < total

    try:
        await _until(begun)
        began = asyncio.get_running_loop().time()
        await covered(bed)
    except TimeoutError:
        raise BenchFailed(f"a backlog of {total} was not projected in {DEADLINE:.0f} s") from None
    return asyncio.get_running_loop().time() - began


async def projected(bed: Bed, session: str, count: int, *, among: int) -> None:
    """Wait until the catalog shows a session with so many events; `among` is the whole backlog."""
    store = bed.log.store
    if store is None:
        raise BenchFailed("the benchmark's log has no Redis")

    async def there() -> bool:
        found = await store.row(bed.log.tenant, session)
        return found is not None and found.seq >= count

    try:
        await _until(there, deadline=DEADLINE + among / _SLOWEST)
    except TimeoutError:
        raise BenchFailed(f"a session of {count} events was not projected") from None


async def _until(condition: Callable[[], Awaitable[bool]], *, deadline: float = DEADLINE) -> None:
    async with asyncio.timeout(deadline):
        while not await condition():  # noqa: ASYNC110  another process is waited for
            await asyncio.sleep(_POLL)
