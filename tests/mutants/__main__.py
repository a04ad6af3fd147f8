"""`python -m tests.mutants [WORD...]`: every mutant, or those whose name has one of the words.

The suites must be green before a safeguard is switched off, and red after it. Prints a table; exits
1 if a mutant survives, 2 if a suite could not be run at all.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.mutants.mutant import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("sdk", "projector", "recorder", "tests")
PATIENCE = 600.0  # seconds for one suite; a mutant that hangs it is as good as missed
GREEN, RED = 0, 1  # pytest's exit codes; any other means that it did not run


class NotRun(Exception):
    """A suite was not green with everything in place, or not run at all."""


class Verdict(Struct, frozen=True):
    """Whether the suite missed the safeguard, and the first test that did."""

    mutant: Mutant
    missed: bool
    by: str
    seconds: float


def main(words: Sequence[str]) -> int:
    """Run the mutants; what the shell is told."""
    mutants = [each for each in MUTANTS if not words or any(w in each.safeguard for w in words)]
    with copied() as tree:
        try:
            _check_green(tree, sorted({test for each in mutants for test in each.suite}))
            verdicts = [judge(tree, each) for each in mutants]
        except NotRun as exc:
            print(exc, file=sys.stderr)
            return 2
    _show(verdicts)
    return 0 if all(each.missed for each in verdicts) else 1


@contextmanager
def copied() -> Generator[Path]:
    """A copy of the tree as it is now, uncommitted changes included."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        yield tree


def _check_green(tree: Path, tests: Sequence[str]) -> None:
    code, said = run(tree, tests)
    if code != GREEN:
        raise NotRun(f"the suite is not green before any safeguard is switched off:\n{said}")


def judge(tree: Path, mutant: Mutant) -> Verdict:
    """Switch a safeguard off, run its suite up to the first failure, and put it back."""
    began = time.monotonic()
    mutant.apply(tree)
    try:
        code, said = run(tree, mutant.suite)
    finally:
        mutant.undo(tree, ROOT)
    if code not in (GREEN, RED):
        raise NotRun(f"{mutant.safeguard}: pytest ended with {code}:\n{said}")
    return Verdict(mutant, code == RED, _first_failed(said), time.monotonic() - began)


def run(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests of the copy against the copy; pytest's exit code and what it said."""
    path = os.pathsep.join(str(tree / part) for part in ("sdk", "projector", "recorder"))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return RED, f"FAILED it hangs for {PATIENCE:.0f} s"
    return done.returncode, done.stdout


def _first_failed(said: str) -> str:
    failed = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" ", 1)[1].split(" - ")[0] if failed else ""


def _show(verdicts: Sequence[Verdict]) -> None:
    table = Table("switched off", "in", "missed by", "s")
    for each in verdicts:
        by = each.by.rpartition("::")[2] if each.missed else "NOBODY: it survives"
        table.add_row(each.mutant.safeguard, each.mutant.module, by, f"{each.seconds:.0f}")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
