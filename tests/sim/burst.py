"""A harness that appends in every shape: alone, at once, with deadlines, given up and cancelled."""

import asyncio
from contextlib import suppress
from typing import Any

from flightlog.session import Session
from tests.sim.harness import BENIGN, Harness


class Burst(Harness):
    """A few of the shapes below, one after the other."""

    async def work(self, s: Session) -> None:
        for _ in range(self.rng.choice((1, 3, 8))):
            if self.world.over:
                return
            await self.rng.choice(_SHAPES)(self, s)
        if self.rng.random() < 0.1:
            await s.end()

    async def single(self, s: Session) -> None:
        await self.note(s)

    async def several(self, s: Session) -> None:
        await self.all(self.note(s) for _ in range(self.rng.choice((2, 3, 5, 9, 20))))

    async def impatient(self, s: Session) -> None:
        deadline = self.rng.choice((0.0, 0.01, 1.0, 7.0))
        await self.all(self.note(s, deadline) for _ in range(self.rng.choice((1, 3, 10))))

    async def cancelled(self, s: Session) -> None:
        tasks = [asyncio.create_task(self.note(s)) for _ in range(self.rng.choice((1, 3, 10)))]
        await asyncio.sleep(self.a_while())
        for task in tasks:
            if self.rng.random() < 0.5:
                task.cancel()
        await asyncio.wait(tasks)

    async def leave_behind(self, s: Session) -> None:
        """Appends that nobody waits for before the session is left."""
        self.left_behind += [asyncio.create_task(self.note(s)) for _ in range(3)]

    async def value(self, s: Session) -> None:
        name = f"v{self.rng.randrange(3)}"
        first, second = await asyncio.gather(*(s.value(name, self.rng.random) for _ in range(2)))
        if first != second:
            self.world.violated(f"value {name} of {s.id} is {first} and {second}")

    async def effect(self, s: Session) -> None:
        async def work() -> int:
            self.ran(s.id, None, "effect:e")
            await asyncio.sleep(self.a_while())
            return 1

        with suppress(*BENIGN):
            await s.effect("e", work, on_resume="rerun")

    async def hook(self, s: Session) -> None:
        async def decide(event: Any) -> str:
            await asyncio.sleep(self.a_while())
            return str(event)

        await s.hook("h", "tool", run=decide)

    async def checkpoint(self, s: Session) -> None:
        await s.checkpoint({"n": self.rng.random()})

    async def wait(self, s: Session) -> None:
        await s.wait(self.rng.choice((0.01, 3.0)))


_SHAPES = (
    Burst.single,
    Burst.single,
    Burst.several,
    Burst.several,
    Burst.impatient,
    Burst.cancelled,
    Burst.leave_behind,
    Burst.value,
    Burst.effect,
    Burst.hook,
    Burst.checkpoint,
    Burst.wait,
)
