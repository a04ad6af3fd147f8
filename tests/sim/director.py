"""Who decides what happens next: processes start, die and freeze; links, servers, clocks fail."""

import asyncio
from collections.abc import Callable
from random import Random

from flightlog.wire.layout import DEAD_STREAM
from tests.sim.agent import Agent
from tests.sim.burst import Burst
from tests.sim.harness import Harness
from tests.sim.outsider import Folder, Importer, Purger, Speaker
from tests.sim.process import Process
from tests.sim.world import World

STEPS = 200  # requests to the bus, and things done to processes and servers
_ROLES: tuple[type[Harness], ...] = (*(Agent, Burst) * 2, Speaker, Folder)
_MOST_ALIVE = 5

Act = Callable[[], bool]


class Director:
    """Acts on a world until its steps are used up. An act that finds nothing to do is no step."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.net, self.rng = world.net, world.rng
        trip = world.weather.latency + world.weather.jitter / 2
        self._gap = trip * self.rng.choice((3, 10, 40))  # seconds between two acts, on average
        self._acts = self._chosen(self.rng)
        self._tampered = False
        self._tamper_at = self.rng.randrange(20, STEPS)

    def _chosen(self, rng: Random) -> list[Act]:
        """Each seed has its own mixture; some faults are left out of most."""
        replicated = self.world.weather.replicas > 1
        acts: list[tuple[Act, int]] = [
            (self._start, 6),
            (self._doom, rng.choice((0, 2, 6))),
            (self._stun, rng.choice((0, 0, 2, 5))),
            (self._disconnect, rng.choice((0, 0, 2))),
            (self._stop_servers, rng.choice((0, 0, 1))),
            (self._change_leader, rng.choice((0, 2)) if replicated else 0),
            (self._fill, rng.choice((0, 0, 0, 1))),
            (self._skew, rng.choice((0, 0, 1))),
        ]
        return [act for act, weight in acts for _ in range(weight)]

    async def run(self) -> None:
        """Let things happen."""
        for _ in range(self.rng.choice((1, 2, 3))):
            self._start()
        while self.net.steps < STEPS:
            await asyncio.sleep(self.rng.expovariate(1 / self._gap))
            if self.net.steps >= self._tamper_at and not self._tampered:
                self._tampered = self._tamper()
            self.net.steps += self.rng.choice(self._acts)()

    def _start(self) -> bool:
        if len(self.world.alive()) >= _MOST_ALIVE:
            return False
        world = self.world
        key = self.rng.choice((*world.keys, *world.imported))
        imports = key in world.imported and self.rng.random() < 0.5
        self.start(Importer if imports else self.rng.choice(_ROLES), key)
        return True

    def start(self, role: type[Harness], key: str) -> None:
        """Start a process in a role."""
        process = self.world.process(role.__name__.lower())
        self.world.trace(f"start {process.name} on {key}")
        self.world.start(process, role(self.world, process, key).live())

    def _one(self) -> Process | None:
        running = [process for process in self.world.alive() if process.state == "running"]
        return self.rng.choice(running) if running else None

    def _doom(self) -> bool:
        if (process := self._one()) is not None:
            self.world.trace(f"doom {process.name}")
            process.doom(self.rng.choice((1, 1, 1, 4, 30)))
        return process is not None

    def _stun(self) -> bool:
        if (process := self._one()) is not None:
            seconds = self.rng.choice((0.1, 3.0, 20.0, 600.0)) * self.rng.random()
            self.world.trace(f"stun {process.name} for {seconds:.2f}")
            process.stun(self.rng.choice((1, 5, 30)), seconds)
        return process is not None

    def _disconnect(self) -> bool:
        if (process := self._one()) is not None:
            self.world.trace(f"disconnect {process.name}")
            process.bus.disconnect()
            self.net.post(self._outage(), process.bus.reconnect)
        return process is not None

    def _stop_servers(self) -> bool:
        self.world.trace("servers stop")
        self.net.broker.up = False
        self.net.change_leader()
        for process in self.world.alive():
            process.bus.disconnect()
        self.net.post(self._outage(), self._start_servers)
        return True

    def _start_servers(self) -> None:
        self.world.trace("servers start")
        self.net.broker.up = True
        for process in self.world.alive():
            process.bus.reconnect()

    def _change_leader(self) -> bool:
        self.world.trace("no leader")
        self.net.broker.leader = False
        self.net.change_leader()
        self.net.post(self._outage(), self._elect)
        return True

    def _elect(self) -> None:
        self.world.trace("leader")
        self.net.broker.leader = True

    def _fill(self) -> bool:
        self.world.trace("full")
        # No simulated process writes dead letters: seeds keep to the streams that matter.
        written = [each for each in self.net.broker.streams.values() if each.name != DEAD_STREAM]
        stream = self.rng.choice(written)
        stream.full = True
        self.net.post(self._outage(), setattr, stream, "full", False)
        return True

    def _outage(self) -> float:
        return self.rng.choice((0.05, 1.0, 8.0, 60.0)) * self.rng.random()

    def _skew(self) -> bool:
        if (process := self._one()) is not None:
            process.source.skew = self.rng.choice((-1e6, -1.0, 1.0, 1e6))
        return process is not None

    def _tamper(self) -> bool:
        """Once in some seeds: what no broker may ever do, or a purge."""
        match self.world.weather.tamper:
            case "rollback":
                return self._roll_back()
            case "damage":
                return self._damage()
            case "purge":
                self.start(Purger, self.rng.choice(self.world.keys))
                return self.rng.random() < 0.3  # some more: to finish it, or in vain
            case _:
                return True

    def _roll_back(self) -> bool:
        log = self.net.broker.log
        if log.last < 4:
            return False
        log.lose(self.rng.randrange(1, min(log.last, 8)), self.world.loop.time())
        self.world.trace(f"rolled back to {log.last}")
        return True

    def _damage(self) -> bool:
        """A message in the middle of a session is gone, or one anywhere says something else."""
        log = self.net.broker.log
        long = [each for each in sorted(log.subjects) if len(log.entries(each)) > 3]
        if not long:
            return False
        entries, edited = log.entries(self.rng.choice(long)), self.rng.random() < 0.7
        last = edited and self.rng.random() < 0.5
        entry = entries[-1] if last else self.rng.choice(entries[:-1])
        self.world.trace(f"damaged {entry.sequence}")
        log.spoil(entry, self.world.loop.time(), edited=edited)
        return True
