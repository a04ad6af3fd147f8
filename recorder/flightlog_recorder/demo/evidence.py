"""What the log and the workspace say about a session of the demo: read, not told."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from msgspec import Struct

from flightlog import LogCorrupt, state
from flightlog.event import Event
from flightlog.log import Log
from flightlog.wire import payload as payloads
from flightlog.wire.payload import SessionResumed
from flightlog_recorder.cli import target
from flightlog_recorder.demo.workspace import Run, Workspace
from flightlog_recorder.verify import Checker


class Kill(Struct, frozen=True):
    """Where the log stood when the harness was killed."""

    seq: int
    recorded: frozenset[str]  # calls whose result was in the log then
    in_flight: frozenset[str]


class ResumedFrom(Struct, frozen=True):
    """What the second process opened the session from."""

    snapshot_seq: int | None
    tail: int


class Evidence(Struct, frozen=True):
    """One killed and resumed session, checked.

    `acked` counts events whose append returned in either process; `lost` those of them that the log
    does not hold with the same digest; `repeated` recorded calls that were executed again;
    `chain_ok` that `flightlog verify` finds nothing.
    """

    session: str
    acked: int
    stored: int
    lost: int
    killed_at_seq: int
    in_flight: list[str]
    resumed_from: ResumedFrom
    tool_runs: dict[str, int]
    repeated: list[str]
    results_equal: bool
    chain_ok: bool
    snapshot_equals_replay: bool

    @property
    def good(self) -> bool:
        """Whether everything is as promised."""
        fine = self.results_equal and self.chain_ok and self.snapshot_equals_replay
        return fine and not self.lost and not self.repeated


async def gather(
    log: Log, session: str, workspace: Workspace, kill: Kill, expected: "Outcome"
) -> Evidence:
    """Read the session's log from its first event and compare it with all that was witnessed."""
    events, chain_ok = await _read(log, session)
    verdict = await Checker(target.bus_of(log), log.store, log.tenant).check(session)
    acks = workspace.acks()
    return Evidence(
        session=session,
        acked=len(acks),
        stored=len(events),
        lost=_lost(acks, events),
        killed_at_seq=kill.seq,
        in_flight=sorted(kill.in_flight),
        resumed_from=_resumed_from(events, kill),
        tool_runs=workspace.runs_by_tool(),
        repeated=_repeated(workspace.runs(), kill.recorded),
        results_equal=await outcome(log, session, workspace) == expected,
        chain_ok=chain_ok and verdict.outcome == "ok",
        snapshot_equals_replay=await _is_replay(log, session, events),
    )


class Outcome(Struct, frozen=True):
    """What a run is for: the session's status and result, and the files that it left."""

    status: str
    result: bytes
    files: str


async def outcome(log: Log, session: str, workspace: Workspace) -> Outcome:
    """How a session ended."""
    found = await log.state(session)
    return Outcome(found.status, bytes(found.result), workspace.digest())


async def _read(log: Log, session: str) -> tuple[list[Event], bool]:
    """The events, and whether they are dense and chained to the end; reading checks both."""
    events: list[Event] = []
    try:
        async for event in log.read(session):
            events.append(event)  # noqa: PERF401  what was read before the damage counts
    except LogCorrupt:
        return events, False
    return events, [event.seq for event in events] == list(range(1, len(events) + 1))


async def _is_replay(log: Log, session: str, events: Sequence[Event]) -> bool:
    """Whether snapshot + tail gives the same bytes as folding the whole log."""
    replayed = reduce(state.apply, events, state.initial())
    return state.encode(replayed) == state.encode(await log.state(session))


def _lost(acks: dict[int, str], events: Sequence[Event]) -> int:
    stored = {event.seq: event.digest for event in events}
    return sum(stored.get(seq) != digest for seq, digest in acks.items())


def _resumed_from(events: Sequence[Event], kill: Kill) -> ResumedFrom:
    said = (payloads.decode(e.type, e.raw) for e in events if e.seq > kill.seq)
    snapshot = next(p.snapshot for p in said if isinstance(p, SessionResumed))
    return ResumedFrom(snapshot, kill.seq - (snapshot or 0))


def _repeated(runs: Sequence[Run], recorded: frozenset[str]) -> list[str]:
    executed = Counter(run.call_id for run in runs)
    return sorted(call_id for call_id in recorded if executed[call_id] != 1)
