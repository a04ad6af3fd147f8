"""Many seeds at once: one process a core, each with a share."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from random import Random

from tests.sim import mutants
from tests.sim.run import Outcome, failures, run
from tests.sim.world import weather_of

CORES = os.cpu_count() or 1
_SHARE = 50  # seeds that one process takes at a time


@contextmanager
def fleet() -> Generator[ProcessPoolExecutor]:
    """Processes to run seeds in; spawned, as a fork inherits a test run's threads and sockets."""
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn"), initializer=_prepare) as pool:
        yield pool


def _prepare() -> None:
    logging.disable()
    gc.freeze()  # what is imported is never garbage


def run_all(pool: ProcessPoolExecutor, first: int, count: int) -> Iterator[Outcome]:
    """Run `count` seeds from `first` on; yields those that violated something, in order."""
    starts = range(first, first + count, _SHARE)
    shares = [min(_SHARE, first + count - start) for start in starts]
    for found in pool.map(failures, starts, shares):
        yield from found


def find(pool: ProcessPoolExecutor, safeguard: str, most: int) -> Outcome | None:
    """The first seed, of `most`, that misses a safeguard which is switched off."""
    return pool.submit(_find, safeguard, most).result()


def _find(safeguard: str, most: int) -> Outcome | None:
    needed = mutants.NEEDED.get(safeguard)
    fit = [s for s in range(1, most + 1) if needed in (None, weather_of(Random(s)).tamper)]
    with mutants.without(safeguard):
        return next((found for seed in fit if (found := run(seed)).violations), None)
