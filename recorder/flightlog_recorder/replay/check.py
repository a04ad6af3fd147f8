"""The gate for a deployment: a projection run over recorded logs, up to where it diverges.

Alone it must keep its promises. Against states that were recorded earlier, or another projection,
it must write the same bytes after every event.
"""

from collections.abc import AsyncIterable, Iterator

from msgspec import Struct

from flightlog import upcast
from flightlog.event import WIRE_VERSION, Event
from flightlog_recorder.replay import recording
from flightlog_recorder.replay.delta import Change, delta
from flightlog_recorder.replay.projection import AnyProjection, Run
from flightlog_recorder.replay.recording import Recorder, Recording


class Divergence(Struct, frozen=True):
    """The first event after which a state is not what it should be.

    `changes` lead from the state as it should be to the one there is; none where one is no JSON.
    """

    seq: int
    type: str
    why: str
    changes: tuple[Change, ...] = ()


class Checked(Struct, frozen=True):
    """A session that was run through; `compared` is how many of its states there was one for."""

    session: str
    events: int
    compared: int
    divergence: Divergence | None = None


async def check(
    session: str,
    events: AsyncIterable[Event],
    projection: AnyProjection,
    *,
    against: "AnyProjection | Recording | None" = None,
    recorder: Recorder | None = None,
) -> Checked:
    """Run a projection through a session's events, to the end or the first divergence."""
    run, wanted = Run(projection), _Wanted(against, session)
    seq = 0
    async for event in events:
        lifted = event if event.v == WIRE_VERSION else upcast.lift(event)
        seq = event.seq
        found = _promised(run, lifted) or wanted.unlike(lifted, run.written)
        if found is not None:
            return Checked(session, seq, wanted.compared, found)
        if recorder is not None:
            recorder.record(session, seq, run.written)
    return Checked(session, seq, wanted.compared)


def _promised(run: Run, event: Event) -> Divergence | None:
    broken = run.step(event)
    return None if broken is None else Divergence(event.seq, event.type, broken)


class _Wanted:
    """What the states should be: another projection's, or those that were recorded."""

    def __init__(self, source: AnyProjection | Recording | None, session: str) -> None:
        self._lines: Iterator[tuple[recording.Line, object]] | None = None
        self._run: Run | None = None
        self.compared = 0
        if isinstance(source, Recording):
            self._lines = source.states(session)
        elif source is not None:
            self._run = Run(source)

    def unlike(self, event: Event, written: bytes) -> Divergence | None:
        """How a state differs from what it should be; a recording may end before the log."""
        if self._run is not None:
            broken = self._run.step(event)
            if broken is not None:
                return Divergence(event.seq, event.type, f"the other projection: {broken}")
            digest, state = recording.digest(self._run.written), None
            if self._run.written != written:
                state = recording.read_state(self._run.written)
        elif self._lines is not None and (line := next(self._lines, None)) is not None:
            digest, state = line[0].digest, line[1]
        else:
            return None
        self.compared += 1
        if digest == recording.digest(written):
            return None
        return Divergence(event.seq, event.type, "another state", _changes(state, written))


def _changes(wanted: object, written: bytes) -> tuple[Change, ...]:
    found = recording.read_state(written)
    return () if wanted is None or found is None else tuple(delta(wanted, found))
