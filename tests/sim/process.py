"""A simulated process: its own link, clock and chance; killed, frozen and thawed from outside."""

from contextvars import Context, copy_context

from flightlog import clock
from tests.sim.bus import SimBus
from tests.sim.loop import NEVER, OWNER, Owner
from tests.sim.network import Network

EPOCH = 1_770_000_000  # seconds; any will do


class Source:
    """Time and chance as this process sees them: its clock may be wrong, and may jump."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self.skew = 0.0  # seconds

    def wall_ns(self) -> int:
        return int((EPOCH + self._net.loop.time() + self.skew) * 1e9)

    def bits(self, count: int) -> int:
        return self._net.rng.getrandbits(count)

    def fraction(self) -> float:
        return self._net.rng.random()


class Process(Owner):
    """One program on one machine."""

    def __init__(self, net: Network, name: str) -> None:
        super().__init__(name)
        self.net = net
        self.context: Context = copy_context()
        self.bus = SimBus(net, name, self.context)
        self.source = Source(net)
        self.was_frozen = False  # its deadlines say nothing then
        self.context.run(OWNER.set, self)
        self.context.run(clock.SOURCE.set, self.source)

    @property
    def alive(self) -> bool:
        """Not killed; it may be frozen."""
        return self.state != "dead"

    def freeze(self) -> None:
        self.was_frozen = True
        super().freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.net.loop.thaw(self)

    def doom(self, callbacks: int) -> None:
        """Kill it at one of its next awaits."""
        self.fuse, self.blow = callbacks, self.kill

    def stun(self, callbacks: int, seconds: float) -> None:
        """Freeze it at one of its next awaits, for a while."""

        def blow() -> None:
            self.fuse = NEVER
            self.freeze()
            self.net.post(seconds, self.thaw)

        self.fuse, self.blow = callbacks, blow
