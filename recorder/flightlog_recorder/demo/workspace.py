"""A directory in which the demo's agent works, and the evidence that is kept beside it."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_NORTH = ("amsterdam", "berlin", "copenhagen", "dublin", "edinburgh", "helsinki", "oslo", "riga")
_SOUTH = ("florence", "geneva", "istanbul", "lisbon", "madrid", "naples", "seville", "zurich")
_EAST = ("jena", "krakow", "prague", "tallinn", "utrecht", "vienna", "warsaw", "york")
BRANCHES = _NORTH + _SOUTH + _EAST
ARRIVING = "deliveries.csv"
REPORT = "report.md"
OUTBOX = "outbox.txt"
_DELIVERIES = "crates,40\npallets,2\n"


@dataclass(frozen=True)
class Run:
    """One execution of a tool, as the tool itself wrote it down."""

    tool: str
    call_id: str


@dataclass(frozen=True)
class Workspace:
    """The agent's files in `files`; beside them what its tools and its harness have witnessed."""

    root: Path

    @property
    def files(self) -> Path:
        """Where the tools work."""
        return self.root / "files"

    @property
    def runs_file(self) -> Path:
        """One line for each execution of a tool, written before the tool does anything."""
        return self.root / "tool-runs"

    @property
    def acks_file(self) -> Path:
        """One line for each event whose append has returned: `seq digest`."""
        return self.root / "acks"

    def prepare(self) -> None:
        """Make last night's sales; the same in every workspace."""
        (self.files / "sales").mkdir(parents=True)
        (self.files / "notes").mkdir()
        for at, branch in enumerate(BRANCHES):
            rows = [f"item-{n},{100 * (at + 1) + 7 * n}\n" for n in range(1, 6)]
            (self.files / "sales" / f"{branch}.csv").write_text("".join(rows))

    def deliver(self) -> None:
        """Let the warehouse's deliveries arrive, which a tool waits for."""
        draft = self.root / ARRIVING
        draft.write_text(_DELIVERIES)
        draft.replace(self.files / ARRIVING)

    def digest(self) -> str:
        """One hash over the names and contents of all the agent's files."""
        found = hashlib.sha256()
        for path in sorted(self.files.rglob("*")):
            if path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found.update(f"{path.relative_to(self.files)} {content}\n".encode())
        return found.hexdigest()

    def runs(self) -> list[Run]:
        """Every execution of a tool so far."""
        return [Run(*line.split()) for line in _lines(self.runs_file)]

    def runs_by_tool(self) -> dict[str, int]:
        """How often each tool was executed."""
        return dict(sorted(Counter(run.tool for run in self.runs()).items()))

    def acks(self) -> dict[int, str]:
        """The digest of each acked event, by seq."""
        return {
            int(seq): digest for seq, digest in (line.split() for line in _lines(self.acks_file))
        }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def append_line(path: Path, line: str) -> None:
    """Append a line by one write: it is there whole, whatever happens to the process next."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
