"""The demo's stage: the processes in it, and where each finds NATS, Redis and its workspace."""

import asyncio
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flightlog_recorder.demo.faults import DemoFailed
from flightlog_recorder.demo.workspace import Workspace
from flightlog_recorder.embedded.child import Child

HARNESS = "flightlog_recorder.demo.harness"
PROJECTOR = "projector"
END_DEADLINE = 30.0  # seconds for one run of the harness; it takes about three
STOP_DEADLINE = 5.0  # seconds for the projector to drain


@dataclass
class Stage:
    """Starts processes that die with this one, however it dies."""

    root: Path
    environment: Mapping[str, str] = field(repr=False)
    _children: list[Child] = field(default_factory=list)
    _projector: Child | None = None

    def projector(self) -> int:
        """Start a projector on a free port; its pid."""
        self._projector = self._start(
            ["flightlog_projector"], PROJECTOR, {"FLIGHTLOG_HTTP_PORT": "0"}
        )
        return self._projector.pid

    def check_projector(self) -> None:
        """Raise `DemoFailed` with its last words if the projector is gone."""
        if self._projector is None or not self._projector.alive:
            raise DemoFailed(f"the projector has ended: {self.last_words(PROJECTOR)}")

    @contextmanager
    def projector_held(self) -> Generator[None]:
        """Hold the projector still (SIGSTOP) for the length of a block."""
        if self._projector is None:
            raise DemoFailed("there is no projector yet")
        self._projector.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self._projector.send(signal.SIGCONT)

    def workspace(self, name: str) -> Workspace:
        """A new workspace with last night's sales in it."""
        found = Workspace(self.root / name)
        found.prepare()
        return found

    def harness(self, key: str, workspace: Workspace) -> Child:
        """Start the harness; the same command starts a session and resumes it."""
        return self._start([HARNESS, key, str(workspace.root)], workspace.root.name, {})

    def _start(self, module: list[str], name: str, more: Mapping[str, str]) -> Child:
        command = [sys.executable, "-m", *module]
        child = Child(command, log=self._log(name), environment={**self.environment, **more})
        self._children.append(child)
        return child

    async def ended(self, harness: Child, workspace: Workspace) -> None:
        """Wait until the harness has ended by itself."""
        if not await asyncio.to_thread(harness.wait, END_DEADLINE):
            raise DemoFailed(f"the harness did not end: {self.last_words(workspace.root.name)}")

    def last_words(self, name: str) -> str:
        """What a process said last, on either output."""
        log = self._log(name)
        said = log.read_text(errors="replace").strip() if log.exists() else ""
        return said.rpartition("\n")[2] or "it said nothing"

    def _log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def close(self) -> None:
        """End whatever still runs."""
        for child in reversed(self._children):
            child.stop(deadline=STOP_DEADLINE)
