"""Opening a session: fold what is there, then own it by appending under expectation (section 7)."""

import asyncio
from collections.abc import Mapping

from msgspec import Raw, Struct

from flightlog import clock
from flightlog import payload as payloads
from flightlog import subject as names
from flightlog.appender import Appended, Appender
from flightlog.bus import Bus
from flightlog.errors import (
    BusUnavailable,
    Fenced,
    NoSuchSession,
    SessionPurged,
)
from flightlog.journal import Journal
from flightlog.keys import MadeBy
from flightlog.payload import Policy, SessionReopened, SessionResumed, SessionStarted
from flightlog.payload import Writer as WriterId
from flightlog.reader import Folded, fold
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import ENDED, SessionState
from flightlog.writer import Draft, Writer

SEAL_PATIENCE = 5.0  # seconds for a base that is being written, or lags, to show its seal
_LOOK_AGAIN = 0.05


class Wanted(Struct, frozen=True):
    """Which session is to be opened, and what its first event by this writer will say."""

    tenant: str
    id: str
    made_by: MadeBy | None  # None: opened by id, which never creates
    key: str | None
    labels: Mapping[str, str]
    policies: Mapping[str, Policy]
    harness_version: str
    reopen: bool
    parent: Raw = payloads.NULL


class Opened(Struct, frozen=True):
    """A session that this process owns (`appender` is None for one that has ended)."""

    folded: Folded[SessionState]
    appender: Appender | None


async def look(bus: Bus, wanted: Wanted, snapshot: Snapshot | None) -> Folded[SessionState]:
    """Fold what is there; wait for a base that has no seal yet. Raises when there is no session."""
    deadline = clock.elapsed() + SEAL_PATIENCE
    while True:
        folded = await fold(bus, wanted.tenant, wanted.id, SESSION, snapshot=snapshot)
        match folded.presence:
            case "present":
                return folded
            case "purged":
                raise SessionPurged(wanted.id)
            case "absent" if wanted.made_by == "session":
                return folded
            case "absent" if wanted.made_by is None:
                raise NoSuchSession(wanted.id)
        if clock.elapsed() > deadline:
            raise NoSuchSession(wanted.id, "its base is not sealed: the fork or import is not done")
        await asyncio.sleep(_LOOK_AGAIN)


async def own(
    bus: Bus, wanted: Wanted, folded: Folded[SessionState], journal: Journal, *, deadline: float
) -> Opened:
    """Append the first event of this writer; from its ack on, every older writer is fenced.

    After a conflict the new tail decides: another takeover in it means `Fenced` (two resumers never
    take turns), anything else is folded in and tried again.
    """
    until = clock.elapsed() + deadline
    writer_id = f"{clock.bits(128):032x}"
    while True:
        journal.state = folded.state
        if folded.state.status in ENDED and not wanted.reopen:
            return Opened(folded, None)
        appender = _appender(bus, wanted, folded, journal.appended)
        try:
            await appender.append(
                _first(wanted, folded, writer_id), deadline=max(0.0, until - clock.elapsed())
            )
            return Opened(folded, appender)
        except Fenced:
            folded = await _tail(bus, wanted, folded)
        except BusUnavailable:
            await appender.close()
            raise


async def _tail(bus: Bus, wanted: Wanted, seen: Folded[SessionState]) -> Folded[SessionState]:
    """What came since the first look; raises `Fenced` if another writer took over in it."""
    folded = await fold(bus, wanted.tenant, wanted.id, SESSION, at_least=seen.last_live + 1)
    if folded.presence == "purged":
        raise SessionPurged(wanted.id)
    if folded.state.writer > seen.state.writer:
        raise Fenced(wanted.id, seen.seq)
    return folded


def _appender(
    bus: Bus, wanted: Wanted, folded: Folded[SessionState], appended: Appended
) -> Appender:
    writer = Writer(
        wanted.id,
        folded.head,
        expected=folded.last_live,
        harness_version=wanted.harness_version,
        number=folded.head.writer + 1,
        replicas=bus.layout.replicas,
    )
    subject = names.log_subject(wanted.tenant, wanted.id, "live", prefix=bus.layout.prefix)
    return Appender(bus, subject, bus.layout.stream_of(wanted.id), writer, appended)


def _first(wanted: Wanted, folded: Folded[SessionState], writer_id: str) -> Draft:
    state = folded.state
    writer = WriterId(number=folded.head.writer + 1, id=writer_id)
    labels, policies = dict(wanted.labels), dict(wanted.policies)
    if not state.seq:
        started = SessionStarted(
            writer=writer,
            key=wanted.key,
            labels=labels,
            policies=policies,
            parent=wanted.parent,
        )
        return Draft("session_started", payloads.encode(started))
    ended = state.status in ENDED
    resumed = (SessionReopened if ended else SessionResumed)(
        writer=writer,
        key=wanted.key,
        labels=labels,
        policies=policies,
        in_flight=[call.ref for call in state.calls if call.phase == "running"],
        snapshot=folded.used.seq if folded.used else None,
    )
    return Draft("session_reopened" if ended else "session_resumed", payloads.encode(resumed))
