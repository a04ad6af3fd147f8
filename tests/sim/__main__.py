"""`python -m tests.sim SEED` tells a seed's story; `--count N` runs N of them from there."""

import argparse
import logging
import sys
import time

from tests.sim.fleet import fleet, run_all
from tests.sim.run import run


def main() -> int:
    """Exit 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1)
    asked = parser.parse_args()
    logging.disable()
    if asked.count == 1:
        outcome = run(asked.seed, verbose=True)
        print("\n".join(outcome.violations) or f"nothing is violated: {outcome.trail}")
        return bool(outcome.violations)
    return _run_many(asked.seed, asked.count)


def _run_many(first: int, count: int) -> int:
    began, bad = time.monotonic(), 0
    with fleet() as pool:
        for outcome in run_all(pool, first, count):
            bad += 1
            print(outcome.seed, *outcome.violations[:3], sep="\n   ", flush=True)
    print(f"{bad} of {count} seeds violated something; {time.monotonic() - began:.0f} s")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
