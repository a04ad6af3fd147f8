"""What the recorder does for one session when its turn comes. Idempotent; any replica may do it."""

from datetime import UTC, datetime, timedelta

from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.store import Store
from flightlog.errors import LogCorrupt
from flightlog.log import Log
from flightlog.running import inbox
from flightlog.wire import subject as names
from flightlog.wire.layout import INBOX_STREAM
from flightlog.writing import keys, seal
from flightlog_recorder import purge as purging
from flightlog_recorder.blobs import collect
from flightlog_recorder.purge.purge import look
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.stored import stored_at
from flightlog_recorder.verify import Checker, Verdict

RECORDER = "recorder"
NOBODY_SEALED = "nobody sealed it"


class Care:
    """Looks after the sessions of one tenant."""

    def __init__(
        self, bus: NatsBus, store: Store | None, tenant: str, *, metrics: Metrics, base_age: float
    ) -> None:
        """`base_age`: seconds after its last message until an unsealed base is given up."""
        self.tenant = tenant
        self._bus = bus
        self._log = Log(bus, store, tenant, None)
        self._checker = Checker(bus, store, tenant)
        self._metrics, self._base_age = metrics, timedelta(seconds=base_age)

    async def take(self, session: str) -> Verdict:
        """Finish what others left half done, then verify. Raises `BusUnavailable`."""
        seen = await look(self._log, self._bus, session)
        if seen.is_buried:
            if await purging.finish(self._log, self._bus, session):
                self._metrics.purges.inc()
        elif not seen.live:
            await self._give_up(session)
        elif seen.inbox:
            await self._clear_inbox(session)
        return await self._checker.check(session)

    async def collect(self, session: str) -> None:
        """Delete chunks of blobs that no event will ever refer to. Raises `BusUnavailable`."""
        try:
            gone = await collect(self._bus, self.tenant, session)
        except LogCorrupt:
            return  # what a damaged log refers to is not known; `take` reports it
        self._metrics.chunks.inc(gone)

    async def _give_up(self, session: str) -> None:
        """Abandon a base whose author is gone, or finish that; one that is sealed stays."""
        base = await seal.look(self._bus, self.tenant, session)
        if not await self._is_due(session, base):
            return
        entries = await keys.held_by(self._bus, self.tenant, session)
        if await seal.abandon(
            self._bus, self.tenant, session, entries=entries, by=RECORDER, why=NOBODY_SEALED
        ):
            self._metrics.bases.inc()

    async def _is_due(self, session: str, base: seal.Base) -> bool:
        """Whether a base is old, or abandoned by who crashed or may not purge, and still there."""
        match base.standing:
            case "open":
                return await self._age(session) >= self._base_age
            case "abandoned":
                stream, subject = self._bus.layout.stream_of(session), self._base_of(session)
                first = await self._bus.after(stream, subject, 0)
                return first is not None and first.sequence < base.sequence
            case _:
                return False

    def _base_of(self, session: str) -> str:
        return names.log_subject(self.tenant, session, "base", prefix=self._bus.layout.prefix)

    async def _age(self, session: str) -> timedelta:
        """How long ago the base's last message was stored, by the broker's clock."""
        stream = self._bus.layout.stream_of(session)
        found = await stored_at(self._bus, stream, {"last_by_subj": self._base_of(session)})
        return datetime.now(UTC) - found[1] if found else timedelta()

    async def _clear_inbox(self, session: str) -> None:
        """Delete what the log has taken."""
        taken = (await self._log.state(session)).inbox
        if not taken or not await self._holds_taken(session, taken):
            return
        items = names.inbox_subject(self.tenant, session, "*", prefix=self._bus.layout.prefix)
        gone = await self._bus.purge(INBOX_STREAM, items, below=taken + 1)
        self._metrics.inbox.inc(gone)

    async def _holds_taken(self, session: str, taken: int) -> bool:
        async for item in inbox.received(self._bus, self.tenant, session, after=0):
            return item.sequence <= taken
        return False
