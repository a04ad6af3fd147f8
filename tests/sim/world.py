"""One seed: servers, processes and what became of them, until everything is healed."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, TypeVar, cast

from flightlog import event as events
from flightlog import snapshot as snapshots
from flightlog.cache.store import Store
from flightlog.errors import FlightlogError
from flightlog.log import Log
from flightlog.snapshot import SESSION, Snapshot
from tests.sim.faults import Weather
from tests.sim.loop import NEVER, VirtualLoop
from tests.sim.network import Network
from tests.sim.process import Process
from tests.sim.records import Fold, Records
from tests.sim.redis import Snapshots

T = TypeVar("T")

TENANT = "acme"
_HEALING = 400.0  # virtual seconds in which everything must have come to an end


def weather_of(rng: Random) -> Weather:
    """The first that is drawn of a seed: one node or three, and how rough it is."""
    return Weather(rng, rng.choice((1, 3)))


class World:
    """What the processes of one seed share, and what is known about it."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.seed, self.rng = seed, Random(seed)
        self.loop = VirtualLoop()
        self.verbose = verbose
        self.weather = weather_of(self.rng)
        self.net = Network(self.loop, self.rng, self.weather)
        self.net.watch = self.trace if verbose else None
        self.snapshots = Snapshots(self.rng, trouble=self.rng.choice((0.0, 0.1, 0.5)))
        self.records = Records()
        self.ids: dict[str, str] = {}
        self.keys = [f"k{n}" for n in range(self.rng.choice((1, 1, 2)))]
        self.imported = ["i0"] if self.weather.tamper == "import" else []
        self.lives: dict[Process, asyncio.Task[None]] = {}
        self._processes: list[Process] = []
        self._living: list[Process] = []
        self.over = False

    def trace(self, text: str) -> None:
        """Say what happens, if somebody watches."""
        if self.verbose:
            print(f"{self.loop.time():10.4f} {self.net.steps:4d} {text}")

    def violated(self, text: str) -> None:
        """Note what must never be."""
        self.trace(f"VIOLATED {text}")
        self.records.violations.append(text)

    def process(self, role: str) -> Process:
        """A new process."""
        made = Process(self.net, f"{role}{len(self._processes)}")
        self._processes.append(made)
        return made

    def start(self, process: Process, life: Coroutine[Any, Any, None]) -> None:
        """Let a process live until it ends, is killed, or everything is healed and waited for."""
        self.lives[process] = self.run(process, life)
        self._living.append(process)

    def run(self, process: Process, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a process' main function."""
        return process.context.run(self.loop.create_task, work)

    def alive(self) -> list[Process]:
        """The processes that neither ended nor were killed; some may be frozen."""
        living = [each for each in self._living if each.alive and not self.lives[each].done()]
        self._living = living
        return list(living)

    def connect(self, process: Process) -> Log:
        """A log on the process' own link."""
        return Log(process.bus, cast("Store", self.snapshots), TENANT, None)

    def target(self, key: str) -> dict[str, str]:
        """How a process names the session: by its key, or by the id that it knows."""
        known = self.ids.get(key)
        if known is not None and self.rng.random() < 0.3:
            return {"id": known}
        return {"key": key}

    async def look(self, log: Log, process: Process, session: str) -> None:
        """Fold a session, keep what came out, and store it as a snapshot."""
        began = self.loop.time()
        folded = await log.fold(session)
        state = SESSION.encode(folded.state)
        held = Fold(process.name, session, folded.seq, folded.digest, state, began)
        self.records.folds.append(held)
        saved = Snapshot(
            projection=SESSION.name,
            version=SESSION.version,
            schema=events.WIRE_VERSION,
            seq=folded.seq,
            sequence=folded.sequence,
            part=folded.part,
            read_to=folded.read_to,
            digest=str(folded.digest),
            writers=folded.writers,
            cut=snapshots.cut(SESSION, folded.state),
        )
        self.snapshots.save(session, saved)

    def check_deadline(self, process: Process, what: str, began: float, limit: float) -> None:
        """An error must come in time, unless the process was stopped meanwhile."""
        took = self.loop.time() - began
        if took > limit and not process.was_frozen:
            self.violated(f"{what} in {process.name} took {took:.1f} s, its limit was {limit:.1f}")

    def heal(self) -> None:
        """No more faults, nobody is frozen, every link is up."""
        self.over = True
        self.weather.calm()
        self.net.broker.up = self.net.broker.leader = True
        for stream in self.net.broker.streams.values():
            stream.full = False
        for process in self._processes:
            process.bus.reconnect()
            process.fuse = NEVER
            process.thaw()

    async def wait_for_all(self) -> None:
        """Everybody who lives comes to an end in time; else somebody is stuck."""
        living = [self.lives[process] for process in self.alive()]
        if living:
            await asyncio.wait(living, timeout=_HEALING)
        for process, task in self.lives.items():
            if process.alive and not task.done():
                self.violated(f"{process.name} is stuck though all faults are healed")
                self.trace(self.loop.waiting())
            elif task.done() and not task.cancelled():
                self._judge(process, task.exception())

    def _judge(self, process: Process, exc: BaseException | None) -> None:
        if exc is not None and not isinstance(exc, FlightlogError):
            self.violated(f"{process.name} ended with {type(exc).__name__}: {exc}")
