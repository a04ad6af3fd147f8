"""One server of ours: started, killed and started again on the same data and port."""

import signal
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from flightlog_recorder.embedded import endpoint as endpoints
from flightlog_recorder.embedded.child import Child
from flightlog_recorder.embedded.endpoint import Endpoint
from flightlog_recorder.embedded.faults import ServerFailed

START_DEADLINE = 30.0  # seconds; a store of millions of messages is scanned after a hard kill
STOP_DEADLINE = 10.0  # seconds until SIGKILL
READY_POLL = 0.01  # seconds


class Kind(Protocol):
    """What differs between NATS and Valkey."""

    @property
    def name(self) -> str:
        """The word for it in file names and messages."""
        ...

    def prepare(self, home: Path, endpoint: Endpoint) -> list[str]:
        """Write the settings into `home`; the command that runs the server on them."""
        ...

    def url(self, endpoint: Endpoint) -> str:
        """What a client connects to, token included."""
        ...

    def answers(self, endpoint: Endpoint) -> bool:
        """Whether this very server takes requests now."""
        ...


class Server:
    """A server process on loopback. Its URL stays the same from the first start to the last."""

    def __init__(self, kind: Kind, home: Path, *, hold: Sequence[int] = ()) -> None:
        """`home` is the server's own directory; `hold` are descriptors it keeps open."""
        self.home = home
        self.log = home / "server.log"
        self._kind = kind
        self._hold = hold
        self._child: Child | None = None
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._endpoint = endpoints.load(self._memory) or endpoints.fresh(kind.name)
        self._announced = False

    @property
    def url(self) -> str:
        """What a client connects to; it holds the token, so it is a secret."""
        return self._kind.url(self._endpoint)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._endpoint.port

    @property
    def pid(self) -> int:
        """The server's process id; 0 when it does not run."""
        return self._child.pid if self._child and self._child.alive else 0

    @property
    def running(self) -> bool:
        """Whether the process lives (paused counts)."""
        return self._child is not None and self._child.alive

    def start(self) -> None:
        """Start and wait until it answers; nothing happens when it runs.

        A port that others took meanwhile is given up for another one only before the first start.
        """
        if self.running:
            return
        deadline = time.monotonic() + START_DEADLINE
        while not self._try_start(deadline):
            if not self._announced:
                self._endpoint = endpoints.fresh(self._kind.name)
        self._announced = True
        endpoints.save(self._memory, self._endpoint)

    def stop(self) -> None:
        """End it in good order, by force after ten seconds. Idempotent."""
        if self._child:
            self._child.stop(deadline=STOP_DEADLINE)

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would. Idempotent."""
        if self._child:
            self._child.kill()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): connections stay open and nothing answers."""
        if self._child:
            self._child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        if self._child:
            self._child.send(signal.SIGCONT)

    @property
    def _memory(self) -> Path:
        return self.home / "endpoint.json"

    def _try_start(self, deadline: float) -> bool:
        """Start once; false when its port was taken, and another attempt may help."""
        said_before = self.log.stat().st_size if self.log.exists() else 0
        command = self._kind.prepare(self.home, self._endpoint)
        self._child = child = Child(command, log=self.log, hold=self._hold)
        while child.alive and time.monotonic() < deadline:
            if self._kind.answers(self._endpoint):
                return True
            time.sleep(READY_POLL)
        child.kill()
        said = self._said_since(said_before)
        if "address already in use" not in said.lower() or time.monotonic() >= deadline:
            raise ServerFailed(self._kind.name, self.log, said.strip().rpartition("\n")[2])
        return False

    def _said_since(self, offset: int) -> str:
        with self.log.open("rb") as log:
            log.seek(offset)
            return log.read().decode(errors="replace")


@contextmanager
def running(kind: Kind, home: Path, *, hold: Sequence[int] = ()) -> Generator[Server]:
    """Run one server for the length of a block."""
    server = Server(kind, home, hold=hold)
    try:
        server.start()
        yield server
    finally:
        server.stop()
