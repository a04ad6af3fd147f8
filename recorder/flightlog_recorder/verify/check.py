"""Verifies sessions one by one: each log from its first event, then what Redis says of it."""

from flightlog.blobs.blob import Blobs
from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.floor import Floors
from flightlog.cache.shelf import Shelf
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.errors import BlobCorrupt, BlobMissing, LogCorrupt
from flightlog.reading import reader
from flightlog.reading.reader import Folded
from flightlog.snapshot import SESSION
from flightlog.wire import subject as names
from flightlog_recorder.verify import verdict
from flightlog_recorder.verify.replay import Replay, Replayed
from flightlog_recorder.verify.verdict import Finding, Stored, Verdict


class Checker:
    """Verifies the sessions of a tenant; without Redis their logs alone."""

    def __init__(self, bus: NatsBus, store: Store | None, tenant: str) -> None:
        self._bus, self._store, self._tenant = bus, store, tenant

    async def check(self, session: str) -> Verdict:
        """Verify a session. Memory is a page and the session's context.

        Raises `BusUnavailable` in time; damage and a silent Redis are verdicts, not errors.
        """
        held, unread = await self._held(session)
        try:
            folded = await self._fold(session, held)
            if held and held.reach > folded.read_to and folded.presence == "present":
                if not await self._leads(session, held.reach):
                    return verdict.shortened(session, folded, held)
                folded = await self._fold(session, held, at_least=held.reach)
        except LogCorrupt as exc:
            return verdict.damaged(session, exc.seq, str(exc))
        found = verdict.judge(session, folded, held)
        if folded.presence == "present":
            found = verdict.with_problems(found, await self._blobs(session, folded.state))
        return found if unread is None else verdict.with_note(found, unread)

    async def _fold(
        self, session: str, held: Stored | None, *, at_least: int = 0
    ) -> Folded[Replayed]:
        replay = Replay(held.seqs if held else frozenset())
        return await reader.fold(self._bus, self._tenant, session, replay, at_least=at_least)

    async def _blobs(self, session: str, replayed: Replayed) -> list[Finding]:
        """What is wrong with what the events refer to; each content is read in pieces."""
        blobs, problems = Blobs(self._bus, self._tenant, session), list[Finding]()
        for each in [each for _, each in replayed.blobs.items()]:
            try:
                await blobs.prove(each.blob)
            except (BlobMissing, BlobCorrupt) as exc:
                problems.append(Finding("blob", f"event {each.seq}: {exc}"))
        return problems

    async def _held(self, session: str) -> tuple[Stored | None, str | None]:
        """What Redis holds, or why it was not asked. The row first: the log is read after both."""
        if self._store is None:
            return None, None
        try:
            row = await self._store.row(self._tenant, session)
            shelf = Shelf(self._store, self._tenant, session, SESSION.name, SESSION.version)
            held = await shelf.load()
            floor = await Floors(self._store, self._bus.layout.stream_of(session)).floor()
        except StoreUnavailable:
            return None, "snapshot and row were not compared: Redis does not answer"
        return Stored(held.value, held.snapshot, row, floor.sequence if floor else None), None

    async def _leads(self, session: str, sequence: int) -> bool:
        """Whether the stream's leader has a message of the session at `sequence` or later."""
        stream = self._bus.layout.stream_of(session)
        for part in ("live", "base"):
            subject = names.log_subject(self._tenant, session, part, prefix=self._bus.layout.prefix)
            last = await self._bus.last(stream, subject)
            if last is not None and last.sequence >= sequence:
                return True
        return False
