"""The invariants of a log: what is stored, what the SDK reads, and what everybody was told."""

from collections import Counter

from flightlog import snapshot as snapshots
from flightlog.errors import LogCorrupt
from flightlog.event import Event, digest_of
from flightlog.reading import reader
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import SessionState
from flightlog.wire import subject as names
from tests.sim import calls, oracle
from tests.sim.broker import Entry
from tests.sim.oracle import Told
from tests.sim.world import TENANT, World


class Checker:
    """Looks at a world that has come to rest, with every replica up to date."""

    def __init__(self, world: World) -> None:
        self.world, self.records, self._violated = world, world.records, world.violated
        self.log = world.net.broker.log
        self.tamper = world.weather.tamper
        self.bus = world.process("checker").bus
        self.moved = {digest_of(entry.message.body) for entry in self.log.lost}
        self.lost = self._lost()
        self.stranded: set[str] = set()  # stored on reused sequences behind what is lost

    async def run(self) -> None:
        """Check every session there is."""
        self.world.weather.page = 1_000
        for exc in self.world.loop.unheard:
            self._violated(f"nobody heard of {type(exc).__name__}: {exc}")
        self._check_keys()
        parsed = [names.parse_log_subject(subject) for subject in self.log.subjects]
        for session in dict.fromkeys(each[1] for each in parsed if each is not None):
            base, live = (self._entries(session, part) for part in ("base", "live"))
            if not base or self._check_base(session, base, live):
                await self._check(session, [*base[:-1], *live])

    def _entries(self, session: str, part: str) -> list[Entry]:
        return self.log.entries(names.log_subject(TENANT, session, part))

    def _check_base(self, session: str, base: list[Entry], live: list[Entry]) -> bool:
        """Whether the base is sealed: only then is there a session, and anything behind it."""
        sealed = oracle.is_seal(base[-1])
        if live and not (sealed and base[-1].sequence < live[0].sequence):
            self._violated(f"{session} is written to, and its base is not sealed")
        return sealed

    async def _check(self, session: str, entries: list[Entry]) -> None:
        told = [found for entry in entries if (found := oracle.told(entry)) is not None]
        if len(told) < len(entries):
            self._check_grave(session, entries)
            return
        self._check_losing(session, told)
        self._strand(told)
        counted = oracle.chain(told)
        events = await self._read(session, sound=oracle.explained(told, counted))
        if events is None:
            return
        if [event.digest for event in events] != [each.digest for each in counted]:
            self._violated(
                f"{session}: the SDK reads {len(events)} events, {len(counted)} count, or others"
            )
            return
        self._check_order(session, counted)
        if self.tamper != "leak":
            self._check_acks(session, entries, counted)
            self._check_notes(session, counted)
            self._check_losses(session, entries)
        self._check_items(session, counted)
        calls.check(self.world, session, counted)
        states = _replay(events)
        self._check_folds(session, counted, states)
        await self._check_snapshot(session, events, states)

    async def _read(self, session: str, *, sound: bool) -> list[Event] | None:
        events: list[Event] = []
        try:
            async for event in reader.read(self.bus, TENANT, session):
                del events[event.seq - 1 :]  # a seq that goes back makes void what came after it
                events.append(event)
        except LogCorrupt as exc:
            if sound:
                self._violated(f"{session} is sound, but {exc}")
            return None
        if not sound:
            self._violated(f"{session} is damaged, and is folded over")
            return None
        return events

    def _check_losing(self, session: str, told: list[Told]) -> None:
        """Nobody who opens the session behind a loss goes on with what was lost."""
        lost, late = self.lost, self.log.lost_at
        later = {each.process for each in self.records.openings if each.began > late}
        for each in told:
            if each.number and each.prev in lost and each.entry.author in later:
                self._violated(f"{session}: {each.entry.author} took over what was lost")

    def _check_grave(self, session: str, entries: list[Entry]) -> None:
        """Nothing is written, and nobody opens, behind a tombstone."""
        stone = next(entry for entry in entries if oracle.told(entry) is None)
        if stone is not entries[-1]:
            self._violated(f"{session} is purged, and written again")
        stored_at = self.log.times[stone.op - 1]
        for opening in self.records.openings:
            if opening.session == session and opening.began > stored_at:
                self._violated(f"{opening.process} opened {session}, which is purged")

    def _check_order(self, session: str, counted: list[Told]) -> None:
        """What comes after a takeover is by who took over; numbers go up one by one."""
        owner, number = "", 0
        for each in counted:
            if each.number:
                if each.number != number + 1:
                    self._violated(f"{session}: writer {each.number} follows writer {number}")
                owner, number = each.entry.author, each.number
            elif each.entry.message.subject.endswith(".base"):
                continue  # it happened elsewhere
            elif each.entry.author != owner:
                who = each.entry.author
                self._violated(f"{session}: seq {each.seq} is by {who}, the writer is {owner}")

    def _check_acks(self, session: str, entries: list[Entry], counted: list[Told]) -> None:
        """Acked is stored, once, where it was said to be."""
        twice = [n for n in Counter(entry.message.body for entry in entries).values() if n > 1]
        if twice:
            self._violated(f"{session} holds {len(twice)} bodies more than once")
        by_seq = {each.seq: each for each in counted}
        for ack in self.records.acks:
            if ack.session != session or ack.digest in self.lost | self.stranded:
                continue
            found = by_seq.get(ack.seq)
            if found is None or found.digest != ack.digest:
                self._violated(f"{ack.process} was acked {ack.type} {ack.seq}, it does not count")
            elif found.entry.sequence != ack.sequence and ack.digest not in self.moved:
                self._violated(f"{ack.process} was told that {ack.seq} is at {ack.sequence}")

    def _strand(self, told: list[Told]) -> None:
        """Know what a late try stored behind what is lost, on sequences that were given out again.

        Its author was acked, and no broker could tell him better: docs/guarantees.md says so.
        """
        for each in told:
            if each.prev in self.lost or each.prev in self.stranded:
                self.stranded.add(each.digest)

    def _lost(self) -> set[str]:
        """What is gone for good; a late or second try stores some of it once more, elsewhere."""
        lost = set(self.moved)
        if lost:
            for entries in self.log.subjects.values():
                lost -= {digest_of(entry.message.body) for entry in entries}
        return lost

    def _check_notes(self, session: str, counted: list[Told]) -> None:
        """An append that raised says the truth about what is stored; order is that of the calls."""
        stored: dict[tuple[str, int], str] = {}
        last: dict[str, int] = {}
        for each in counted:
            if each.type == "note":
                by, n = each.payload["by"], each.payload["n"]
                stored[by, n] = each.digest
                if n <= last.get(by, -1):
                    self._violated(f"{session}: note {n} of {by} is out of order or doubled")
                last[by] = n
        for note in self.records.notes:
            if note.session != session or note.digest in self.lost | self.stranded:
                continue
            found = stored.get((note.process, note.n), "")
            if note.fate == "acked" and found != note.digest:
                self._violated(f"note {note.n} of {note.process} was acked and is not there")
            elif note.fate in ("refused", "fenced") and found and not self.lost:
                self._violated(f"note {note.n} of {note.process} counts, it was told {note.why}")

    def _check_losses(self, session: str, entries: list[Entry]) -> None:
        """Whoever is told that it lost the session can be shown who took it."""
        if self.tamper in ("rollback", "damage"):
            return
        for loss in self.records.losses:
            if loss.session == session:
                mine = [entry.sequence for entry in entries if entry.author == loss.process]
                last = mine[-1] if mine else 0
                others = [e for e in entries if last < e.sequence <= loss.last_sequence]
                if loss.error == "Fenced":
                    others = [e for e in others if self.log.times[e.op - 1] >= loss.since]
                if loss.error == "LogCorrupt" or not any(_takes_over(each) for each in others):
                    self._violated(f"{loss.process} was told {loss.error}, and nobody took over")

    def _check_items(self, session: str, counted: list[Told]) -> None:
        """What was sent to the inbox is in the log, once."""
        taken = Counter(each.payload.get("inbox") for each in counted if "inbox" in each.payload)
        for inbox, times in taken.items():
            if times > 1:
                self._violated(f"{session}: inbox item {inbox} is recorded {times} times")
        if self.tamper:
            return
        for item in self.records.items:
            if item.session == session and item.sequence and item.sequence not in taken:
                self._violated(f"{session}: {item.kind} {item.id} was acked and never taken")

    def _check_folds(self, session: str, counted: list[Told], states: list[SessionState]) -> None:
        """Every state that anybody held is that of a replay up to there."""
        for fold in self.records.folds:
            if fold.session != session:
                continue
            if not fold.seq or (
                fold.seq <= len(counted) and counted[fold.seq - 1].digest == fold.digest
            ):
                if SESSION.encode(states[fold.seq]) != fold.state:
                    self._violated(f"{fold.who} holds another state of {session} at {fold.seq}")
            elif fold.digest in self.lost:
                if fold.at > self.log.lost_at:
                    self._violated(f"{fold.who} folded what {session} has lost at {fold.seq}")
            elif self.tamper != "leak" and fold.digest not in self.stranded:
                self._violated(f"{fold.who} holds {session} at {fold.seq}, which does not count")

    async def _check_snapshot(
        self, session: str, events: list[Event], states: list[SessionState]
    ) -> None:
        """A snapshot anywhere and its tail give the same bytes as a replay."""
        if not events:
            return
        event = self.world.rng.choice(events)
        sealed = len(self._entries(session, "base")) - 1
        taken = Snapshot(
            projection=SESSION.name,
            version=SESSION.version,
            schema=event.v,
            seq=event.seq,
            sequence=event.sequence,
            part="base" if event.seq <= sealed else "live",
            read_to=event.sequence,
            digest=event.digest,
            writers=states[event.seq].writers,
            cut=snapshots.cut(SESSION, states[event.seq]),
        )
        folded = await reader.fold(self.bus, TENANT, session, SESSION, snapshot=taken)
        doubted = folded.used is None and self.tamper != "leak"  # strays may cast doubt on one
        if doubted or SESSION.encode(folded.state) != SESSION.encode(states[-1]):
            self._violated(f"{session}: snapshot {event.seq} and its tail differ from a replay")

    def _check_keys(self) -> None:
        """A key stands for one session, until that one is purged."""
        for key in self.world.keys:
            opened = {each.session for each in self.records.openings if each.key == key}
            if len(opened) > 1 and self.tamper != "purge":
                self._violated(f"key {key} stands for {len(opened)} sessions")


def _takes_over(entry: Entry) -> bool:
    said = oracle.told(entry)
    return said is None or said.number > 0


def _replay(events: list[Event]) -> list[SessionState]:
    states = [SESSION.initial()]
    for event in events:
        states.append(SESSION.apply(states[-1], event))
    return states
