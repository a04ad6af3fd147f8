"""The writer's protocols on a simulated bus: seeds of processes, faults and virtual time.

`python -m tests.sim SEED` tells the story of one; tests/sim/checker.py has the invariants.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.sim import mutants
from tests.sim.director import STEPS
from tests.sim.fleet import find, fleet, run_all
from tests.sim.run import Outcome, run

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parents[1] / "sim" / "corpus" / "seeds.txt"
SEEDS, CHUNK = 20_000, 1_000
SOAK = 2_000_000


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with fleet() as pool:
        yield pool


def told(failed: list[Outcome]) -> str:
    rows = [f"python -m tests.sim {each.seed}: {each.violations[0]}" for each in failed]
    return "\n".join(["add these to tests/sim/corpus/seeds.txt:", *rows])


@pytest.mark.timeout(300)  # 1,000 seeds of 200 steps: 10 s on two idle cores, more on busy ones
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_violates_an_invariant(pool: ProcessPoolExecutor, first: int) -> None:
    failed = list(run_all(pool, first, CHUNK))
    assert not failed, told(failed)


def corpus() -> list[int]:
    lines = [line.partition("#")[0].strip() for line in CORPUS.read_text().splitlines()]
    return [int(line) for line in lines if line]


@pytest.mark.parametrize("seed", corpus())
def test_a_seed_that_once_failed_does_so_no_more(seed: int) -> None:
    assert not run(seed).violations


@pytest.mark.timeout(120)  # the first ones take one seed each, the rarest some hundred
@pytest.mark.parametrize("safeguard", mutants.MUTANTS)
def test_a_safeguard_that_is_switched_off_is_missed(
    pool: ProcessPoolExecutor, safeguard: str
) -> None:
    found = find(pool, safeguard, mutants.MOST_SEEDS)
    assert found is not None, f"{mutants.MOST_SEEDS} seeds do not miss {safeguard}"
    print(f"{safeguard}: seed {found.seed}, {found.violations[0]}")


def test_a_seed_goes_the_same_way_every_time() -> None:
    """In another process, too, where strings hash to other numbers and sets have other orders."""
    script = "from tests.sim.run import run; print([run(seed).trail for seed in range(12)])"
    here = [run(seed).trail for seed in range(12)]
    there = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == str(here)


def test_a_seed_has_all_its_steps_and_stores_something() -> None:
    outcomes = [run(seed) for seed in range(12)]
    assert all(each.steps >= STEPS for each in outcomes)
    assert sum(each.acks for each in outcomes) > 12 * 20


@pytest.mark.soak
@pytest.mark.timeout(86_400)  # hours: some 6 a million on two cores
def test_no_seed_of_millions_violates_an_invariant(pool: ProcessPoolExecutor) -> None:
    failed: list[Outcome] = []
    for outcome in run_all(pool, SEEDS, SOAK):
        print(f"python -m tests.sim {outcome.seed}: {outcome.violations[0]}", flush=True)
        failed.append(outcome)
    assert not failed, told(failed)
