"""Opening a session: fold what is there, then own it by appending under expectation (section 7)."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Raw, Struct

from flightlog import clock, environment
from flightlog.bus.patience import ANSWER_TIMEOUT
from flightlog.bus.protocol import Bus
from flightlog.errors import (
    BusUnavailable,
    Fenced,
    InvalidValue,
    NoSuchSession,
    SessionLive,
    SessionPurged,
    VersionRefused,
)
from flightlog.reading import reader
from flightlog.reading.reader import Folded, Passed
from flightlog.running.journal import Journal
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import ENDED, SessionState
from flightlog.wire import payload as payloads
from flightlog.wire import subject as names
from flightlog.wire.payload import Policy, SessionReopened, SessionResumed, SessionStarted
from flightlog.wire.payload import Writer as WriterId
from flightlog.writing.appender import Appended, Appender
from flightlog.writing.draft import Draft
from flightlog.writing.keys import MadeBy
from flightlog.writing.writer import Writer

T = TypeVar("T")

SEAL_PATIENCE = 5.0  # seconds for a base that is being written, or lags, to show its seal
TEXT_BYTES = 4096  # of a key, a label or a harness version: all go into one event
_LOOK_AGAIN = 0.05
_BUS_AGAIN = 0.2


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
    compatible: frozenset[str] | None = None  # harness versions beside our own; None: any
    after_writer: int | None = None  # the last writer, who was seen to be gone; None: whoever it is


class Opened(Struct, frozen=True):
    """A session that this process owns (`appender` is None for one that has ended)."""

    folded: Folded[SessionState]
    appender: Appender | None


def check(key: str | None, id: str | None, labels: Mapping[str, str], harness_version: str) -> None:
    """Refuse what cannot be recorded, before anything is sent. Raises `InvalidValue`."""
    if key is not None and id is not None:
        raise InvalidValue("session", "give its key or its id, not both")
    for what, text in (("key", key or ""), ("harness_version", harness_version)):
        _check_text(what, text)
    for name, label in labels.items():
        _check_text("labels", name)
        _check_text("labels", label)


def _check_text(what: str, text: object) -> None:
    try:
        fits = isinstance(text, str) and len(text.encode()) <= TEXT_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        raise InvalidValue(what, f"it must be valid text of at most {TEXT_BYTES} bytes")


async def patiently(work: Callable[[], Awaitable[T]], *, until: float) -> T:
    """Do work again while the bus is away, until that time on the loop's clock, and no longer."""
    return await _again(work, asyncio.timeout_at(until))


async def page_by_page(
    work: Callable[[Passed[SessionState]], Awaitable[T]], *, until: float
) -> tuple[T, float]:
    """The same for what reads a log: a page leaves time for one more answer, the first time only.

    With the time until when what follows may take: that for an answer at least.
    """
    limit, furthest = asyncio.timeout_at(until), -1

    async def passed(folded: Folded[SessionState]) -> None:
        nonlocal furthest
        if folded.seq > furthest and not limit.expired():  # it may come when it is just too late
            furthest = folded.seq
            limit.reschedule(_answered_by(until))

    found = await _again(functools.partial(work, passed), limit)
    return found, _answered_by(until)


def _answered_by(until: float) -> float:
    return max(until, clock.elapsed() + ANSWER_TIMEOUT)


async def _again(work: Callable[[], Awaitable[T]], limit: asyncio.Timeout) -> T:
    trouble = BusUnavailable("the opening", "no answer in time")
    try:
        async with limit:
            while True:
                try:
                    return await work()
                except BusUnavailable as exc:
                    trouble = exc
                await asyncio.sleep(_BUS_AGAIN)
    except TimeoutError:
        raise trouble from None


async def fold(
    bus: Bus,
    tenant: str,
    id: str,
    snapshot: Snapshot | None,
    *,
    until: int | None = None,
    passed: Passed[SessionState] | None = None,
) -> Folded[SessionState]:
    """Fold a session's log; that there is none is believed of the leader alone."""
    folding = functools.partial(reader.fold, bus, tenant, id, SESSION, until=until, passed=passed)
    folded = await folding(snapshot=snapshot)
    if folded.presence != "absent" or bus.layout.replicas == 1:
        return folded
    stream = bus.layout.stream_of(id)
    for part in ("base", "live"):
        subject = names.log_subject(tenant, id, part, prefix=bus.layout.prefix)
        if (first := await bus.after(stream, subject, 0, leader=True)) is not None:
            return await folding(at_least=first.sequence)
    return folded


async def look(
    bus: Bus, wanted: Wanted, snapshot: Snapshot | None, passed: Passed[SessionState] | None = None
) -> Folded[SessionState]:
    """Fold what is there; wait for a base that has no seal yet. Raises when there is no session."""
    deadline = clock.elapsed() + SEAL_PATIENCE
    while True:
        folded = await to_the_end(bus, wanted.tenant, wanted.id, snapshot, passed=passed)
        match folded.presence:
            case "present":
                return folded
            case "purged":
                raise SessionPurged(wanted.id)
            case "absent" if wanted.made_by == "session":
                return folded
            case "absent" if wanted.made_by is None:
                raise NoSuchSession(wanted.id)
            case _:  # a base that has no seal, or is not in sight
                pass
        if clock.elapsed() > deadline:
            raise NoSuchSession(wanted.id, "its base is not sealed: the fork or import is not done")
        await asyncio.sleep(_LOOK_AGAIN)


async def to_the_end(
    bus: Bus,
    tenant: str,
    id: str,
    snapshot: Snapshot | None,
    *,
    passed: Passed[SessionState] | None = None,
) -> Folded[SessionState]:
    """Fold all that the leader has: a takeover hidden by lag would look like a faster resumer."""
    folding = fold(bus, tenant, id, snapshot, passed=passed)
    if bus.layout.replicas == 1:
        return await folding
    live = names.log_subject(tenant, id, "live", prefix=bus.layout.prefix)
    folded, last = await asyncio.gather(folding, bus.last(bus.layout.stream_of(id), live))
    if last is None or last.sequence <= folded.last_live:
        return folded
    return await reader.fold(
        *(bus, tenant, id, SESSION),
        snapshot=snapshot,
        at_least=last.sequence,
        passed=passed,
    )


async def own(
    bus: Bus, wanted: Wanted, folded: Folded[SessionState], journal: Journal, *, until: float
) -> Opened:
    """Append the first event of this writer; from its ack on, every older writer is fenced.

    After a conflict the new tail decides: another takeover in it means `Fenced` (two resumers never
    take turns), anything else is folded in and tried again. So does one before it mean
    `SessionLive`, where it was looked who is gone.
    """
    if wanted.after_writer is not None and folded.state.writer > wanted.after_writer:
        raise SessionLive(wanted.id)
    writer_id = environment.writer_id()
    while True:
        journal.state = folded.state
        if folded.state.status in ENDED and not wanted.reopen:
            return Opened(folded, None)
        _check_version(wanted, folded.state)
        appender = _appender(bus, wanted, folded, journal.appended)
        try:
            await appender.append(
                _first(wanted, folded, writer_id), deadline=max(0.0, until - clock.elapsed())
            )
        except Fenced:
            tail = functools.partial(_tail, bus, wanted, folded)
            folded, until = await page_by_page(tail, until=until)
        except BaseException:
            await appender.close()
            raise
        else:
            return Opened(folded, appender)


def _check_version(wanted: Wanted, state: SessionState) -> None:
    found = state.harness_version
    if not found or wanted.compatible is None:
        return  # who says no version, as `flightlog run`, has written nothing in its form
    if found in (wanted.harness_version, *wanted.compatible):
        return
    known = ", ".join(sorted({wanted.harness_version, *wanted.compatible}))
    raise VersionRefused(wanted.id, f"harness version {found}", known)


async def _tail(
    bus: Bus, wanted: Wanted, seen: Folded[SessionState], passed: Passed[SessionState]
) -> Folded[SessionState]:
    """What came since the first look; raises `Fenced` if another writer took over in it."""
    where, at_least = (bus, wanted.tenant, wanted.id, SESSION), seen.last_live + 1
    folded = await reader.fold(*where, at_least=at_least, passed=passed)
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
