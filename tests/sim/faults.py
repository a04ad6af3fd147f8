"""What goes wrong, how often, in one seed: the fate of each message, drawn as it is sent."""

from random import Random
from typing import Literal

Fate = Literal["fine", "lost", "late", "ack lost", "odd", "busy"]
Tamper = Literal["", "leak", "rollback", "damage", "purge", "import"]
Table = tuple[tuple[Fate, float], ...]

_APPEND: Table = (
    ("lost", 3.0),
    ("late", 2.0),
    ("ack lost", 4.0),
    ("odd", 2.0),
    ("busy", 4.0),
)
_READ: Table = (("lost", 2.0), ("ack lost", 2.0))
_PATIENCE = 5.0  # seconds after which a sender has given up


class Weather:
    """How rough a seed is. `calm` ends all faults but the lag, which is how a cluster is.

    `tamper` is what most seeds do not have: a broker that lets stale appends through, that forgets
    its last messages or damages one; or somebody who purges, or imports.
    """

    def __init__(self, rng: Random, replicas: int) -> None:
        self.rng = rng
        self.replicas = replicas
        self.trouble = rng.choice((0.0, 0.002, 0.01, 0.01, 0.03))  # per unit of the tables above
        self.read_trouble = self.trouble / rng.choice((1, 3))
        self.latency = rng.choice((0.0005, 0.002, 0.02))  # seconds one way, at least
        self.jitter = rng.choice((0.0005, 0.01, 0.2))
        self.stale = rng.choice((0.02, 0.1, 0.4)) if replicas > 1 else 0.0
        self.lag = rng.choice((0.01, 0.1, 2.0))  # seconds that a stale replica is behind, at most
        self.deaf = rng.choice((0.0, 0.1, 1.0))  # of hints
        self.page = rng.choice((3, 20, 1000))  # messages
        self.tamper: Tamper = rng.choices(
            ("", "leak", "rollback", "damage", "purge", "import"), (75, 8, 4, 3, 5, 5)
        )[0]
        self.leak = rng.choice((0.1, 0.5)) if self.tamper == "leak" else 0.0
        self.full_first = rng.random() < 0.5  # a full stream says so before it looks further

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.trouble = self.read_trouble = self.deaf = self.leak = 0.0
        self.jitter, self.lag = 0.0005, 0.01

    def append(self) -> Fate:
        """What becomes of an append."""
        return self._draw(_APPEND, self.trouble) if self.trouble else "fine"

    def read(self) -> Fate:
        """What becomes of a read."""
        return self._draw(_READ, self.read_trouble) if self.read_trouble else "fine"

    def _draw(self, table: Table, unit: float) -> Fate:
        dice = self.rng.random()
        for fate, weight in table:
            dice -= weight * unit
            if dice < 0:
                return fate
        return "fine"

    def travel(self) -> float:
        """Seconds that a message takes."""
        return self.latency + self.jitter * self.rng.random()

    def late(self) -> float:
        """Seconds that a message takes which its sender has given up."""
        more = self.rng.choice((0.1, 1.0, 10.0, 100.0)) * self.rng.random()
        return _PATIENCE + more

    def behind(self) -> float:
        """Seconds that the replica which answers a read is behind; -1 for not at all."""
        if not self.stale or self.rng.random() > self.stale:
            return -1.0
        return self.lag * self.rng.random()
