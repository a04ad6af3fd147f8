"""What is found wrong with a session, decided from what was read. Pure."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from flightlog import snapshot as snapshots
from flightlog.cache import catalog
from flightlog.cache.catalog import Row
from flightlog.reading.chain import Stray
from flightlog.reading.reader import Folded
from flightlog.snapshot import SESSION, Snapshot
from flightlog_recorder.verify.replay import Place, Replayed

Kind = Literal["log", "stray", "base", "blob", "snapshot", "catalog"]
Outcome = Literal["ok", "problem", "unsealed", "purged", "absent"]

# What a row says of where it was read, and not of the session.
_OF_THE_READING = frozenset(
    {"strays", "read_to", "snapshot_seq", "snapshot_at", "error", "damage", "stalled"}
)

_DAMAGE = ("log", "base", "blob")


class Finding(Struct, frozen=True):
    """Something that is not as it should be. Never holds a payload."""

    kind: Kind
    what: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What verifying a session found. `checked` names what was compared beside the log."""

    session: str
    outcome: Outcome
    events: int = 0
    digest: str | None = None
    strays: int = 0
    problems: list[Finding] = []
    notes: list[str] = []
    checked: list[str] = []

    @property
    def damage(self) -> str | None:
        """What is wrong with what the broker holds of the session; Redis can be filled again."""
        found = [each.what for each in self.problems if each.kind in _DAMAGE]
        return found[0] if found else None


class Stored(Struct, frozen=True):
    """What Redis holds of a session: the snapshot's head, what it leads to, and the row."""

    value: bytes | None = None
    snapshot: Snapshot | None = None
    row: Row | None = None
    floor: int | None = None  # the stream sequence below which the catalog says it is whole

    @property
    def seqs(self) -> frozenset[int]:
        """The seqs at which the replayed state is compared."""
        snapshot_seq = self.snapshot.seq if self.snapshot else 0
        return frozenset({snapshot_seq, self.row.seq if self.row else 0} - {0})

    @property
    def reach(self) -> int:
        """The last stream sequence of an event that Redis knows of."""
        known = self.snapshot.sequence if self.snapshot else 0
        return max(known, self.row.sequence if self.row else 0)


def judge(session: str, folded: Folded[Replayed], held: Stored | None) -> Verdict:
    """The verdict on a session whose chain holds to its end."""
    if folded.presence != "present":
        return _no_session(session, folded, held)
    problems = _strays(folded.strays)
    notes: list[str] = []
    if held is not None:
        problems += _snapshot(held, folded) + _row(session, held, folded, notes)
    return Verdict(
        session=session,
        outcome="problem" if problems else "ok",
        events=folded.seq,
        digest=folded.digest,
        strays=len(folded.strays),
        problems=problems,
        notes=notes,
        checked=_checked(held),
    )


def _no_session(session: str, folded: Folded[Replayed], held: Stored | None) -> Verdict:
    outcome = "unsealed" if folded.presence == "unsealed" else folded.presence
    problems: list[Finding] = []
    if held is not None and held.row is not None and held.row.error is None:
        problems.append(Finding("catalog", f"the catalog has a row, but the log is {outcome}"))
    return Verdict(
        session=session,
        outcome="problem" if problems else _OUTCOMES[outcome],
        events=folded.seq,
        problems=problems,
        notes=["a base without its seal: no session yet"] if outcome == "unsealed" else [],
    )


_OUTCOMES: dict[str, Outcome] = {"unsealed": "unsealed", "purged": "purged", "absent": "absent"}


def with_note(found: Verdict, note: str) -> Verdict:
    """The verdict with something that the operator should know."""
    return msgspec.structs.replace(found, notes=[*found.notes, note])


def with_problems(found: Verdict, problems: list[Finding]) -> Verdict:
    """The verdict with more that is wrong."""
    if not problems:
        return found
    whole = [*found.problems, *problems]
    return msgspec.structs.replace(found, outcome="problem", problems=whole)


def ghost(session: str) -> Verdict:
    """The verdict on a row of the catalog whose session no stream holds."""
    what = "the catalog has a row, but no stream holds a message of it"
    return Verdict(session=session, outcome="problem", problems=[Finding("catalog", what)])


def damaged(session: str, seq: int, why: str) -> Verdict:
    """The verdict on a log that does not chain."""
    return Verdict(session=session, outcome="problem", events=seq, problems=[Finding("log", why)])


def shortened(session: str, folded: Folded[Replayed], held: Stored) -> Verdict:
    """The verdict on a log that ends below what Redis knows of it, as its leader confirms."""
    known = max(held.seqs, default=0)
    lost = f"the log ends at seq {folded.seq}, but Redis knows of seq {known}: events were lost"
    return Verdict(
        session=session,
        outcome="problem",
        events=folded.seq,
        digest=folded.digest,
        strays=len(folded.strays),
        problems=[*_strays(folded.strays), Finding("log", lost)],
        checked=_checked(held),
    )


def _strays(strays: tuple[Stray, ...]) -> list[Finding]:
    return [
        Finding("stray", f"stream sequence {each.sequence} is no event of it: {each.why}")
        for each in strays
    ]


def _checked(held: Stored | None) -> list[str]:
    if held is None:
        return []
    snapshot = [f"snapshot at {held.snapshot.seq}"] if held.snapshot else []
    return snapshot + (["row"] if held.row else [])


def _snapshot(held: Stored, folded: Folded[Replayed]) -> list[Finding]:
    """The stored snapshot against the replay at its seq, byte for byte."""
    if held.value is None:
        return []
    if held.snapshot is None:
        said = "the stored snapshot is garbage; it is ignored until the next one replaces it"
        return [Finding("snapshot", said)]
    found, place = held.snapshot, folded.state.places.get(held.snapshot.seq)
    if place is None or (place.sequence, place.state.digest) != (found.sequence, found.digest):
        what = f"the snapshot at seq {found.seq} stands on another event than the log has there"
        return [Finding("snapshot", what)]
    if (found.projection, found.version) != (SESSION.name, SESSION.version):
        return [Finding("snapshot", f"the snapshot at seq {found.seq} is filed under another name")]
    replayed = snapshots.cut(SESSION, place.state)
    if (replayed.state, replayed.roots) != (found.cut.state, found.cut.roots):
        return [Finding("snapshot", f"the snapshot at seq {found.seq} is not what replay gives")]
    return []


def _row(session: str, held: Stored, folded: Folded[Replayed], notes: list[str]) -> list[Finding]:
    """The row against the replay at its seq; being behind is fine above the floor only."""
    row, whole = held.row, held.floor is not None and held.floor >= folded.read_to
    if row is None:
        missing = "it has no row in the catalog"
        return _unless_behind(missing, notes, whole=whole)
    if row.error is not None:
        return [Finding("catalog", "the projector has set it aside, though its log can be read")]
    findings = _same_fields(session, row, folded.state.places.get(row.seq), folded)
    if row.read_to < folded.read_to:
        findings += _unless_behind(f"its row ends at seq {row.seq}", notes, whole=whole)
    return findings


def _unless_behind(what: str, notes: list[str], *, whole: bool) -> list[Finding]:
    if whole:
        return [Finding("catalog", f"{what}, though the catalog says that it is whole")]
    notes.append(f"{what} yet")
    return []


def _same_fields(
    session: str, row: Row, place: Place | None, folded: Folded[Replayed]
) -> list[Finding]:
    if place is None:
        return [Finding("catalog", f"its row stands at seq {row.seq}, which the log does not have")]
    wanted = catalog.row_of(
        place.state,
        tenant=row.tenant,
        session=session,
        sequence=place.sequence,
        read_to=folded.read_to,
        strays=len(folded.strays),
    )
    ignored = _OF_THE_READING - ({"strays"} if row.read_to == folded.read_to else set())
    have, want = _fields(row), _fields(wanted)
    differ = [name for name in want if name not in ignored and have[name] != want[name]]
    return [Finding("catalog", f"its row differs in: {', '.join(differ)}")] if differ else []


def _fields(row: Row) -> dict[str, Any]:
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(row).items()}
