"""Run one seed, or many, and say what was violated."""

import gc
from dataclasses import dataclass

from tests.sim.checker import Checker
from tests.sim.claim import claim_all
from tests.sim.director import Director
from tests.sim.world import World

_COLLECT_EVERY = 10  # seeds


@dataclass(slots=True)
class Outcome:
    """What one seed came to; `trail` differs if anything at all went another way."""

    seed: int
    violations: list[str]
    steps: int
    acks: int
    trail: str


def run(seed: int, *, verbose: bool = False) -> Outcome:
    """Run a seed to its end."""
    world = World(seed, verbose=verbose)
    try:
        world.loop.run_until_complete(_story(world))
    except AssertionError as exc:
        world.violated(f"{type(exc).__name__}: {exc}")
    finally:
        world.loop.bury()
    trail = f"{world.net.steps} {world.loop.time()} {world.rng.random()}"
    return Outcome(seed, world.records.violations, world.net.steps, len(world.records.acks), trail)


async def _story(world: World) -> None:
    await Director(world).run()
    world.trace("everything is healed")
    world.heal()
    await world.wait_for_all()
    await claim_all(world)
    await Checker(world).run()


def failures(first: int, count: int) -> list[Outcome]:
    """Run seeds in a row; those that violated something."""
    gc.disable()  # garbage is looked for between seeds: while they run it costs a tenth
    bad: list[Outcome] = []
    for seed in range(first, first + count):
        if (outcome := run(seed)).violations:
            bad.append(outcome)
        if seed % _COLLECT_EVERY == 0:
            gc.collect()
    return bad
