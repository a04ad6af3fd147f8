"""Harness scripts as real processes, for tests that kill them."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flightlog_recorder.embedded.child import Child
from tests.scripted import TENANT, until

SCRIPTS = Path(__file__).parent / "harnesses"


@dataclass
class Workshop:
    """A folder in which an agent's plan, its tools' traces and its last words are."""

    folder: Path
    environment: dict[str, str]
    children: list[Child] = field(default_factory=list[Child])

    def plan(self, *calls: tuple[str, str, dict[str, Any]], hold: Sequence[str] = ()) -> None:
        """What the model asks for, and which of these calls hang."""
        (self.folder / "plan.json").write_text(json.dumps(calls))
        for call_id in hold:
            (self.folder / f"hold.{call_id}").touch()

    def release(self) -> None:
        """No call hangs any more."""
        for held in self.folder.glob("hold.*"):
            held.unlink()

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Every run of a tool, in order, in whatever process."""
        trace = self.folder / "runs"
        return (
            [json.loads(line) for line in trace.read_text().splitlines()] if trace.exists() else []
        )

    @property
    def words(self) -> str:
        """What the processes printed."""
        printed = self.folder / "printed"
        return printed.read_text() if printed.exists() else ""

    def start(self, script: str, *arguments: str) -> Child:
        """Run a script of `harnesses`."""
        command = [sys.executable, str(SCRIPTS / script), *arguments]
        environment = self.environment | {"FLIGHTLOG_TENANT": TENANT}
        child = Child(command, log=self.folder / "printed", environment=environment)
        self.children.append(child)
        return child

    def agent(self, key: str = "job", *options: str) -> Child:
        """Run the agent on this folder."""
        return self.start("agent.py", key, str(self.folder), *options)

    async def kill_when(self, child: Child, *ran: str) -> None:
        """Kill the process with SIGKILL once these calls run."""
        await until(lambda: self._all_ran(child, ran), timeout=60)
        child.kill()

    def _all_ran(self, child: Child, ran: Sequence[str]) -> bool:
        assert child.alive, self.words
        return set(ran) <= {run["id"] for run in self.runs}

    async def ended(self, child: Child) -> None:
        """Wait until the process is gone by itself."""
        assert await asyncio.to_thread(child.wait, 60), "it did not end"

    def clear(self) -> None:
        """Kill what still lives."""
        for child in self.children:
            child.send(signal.SIGCONT)
            child.kill()
