"""Sessions that run and of which nothing is heard: marked in the catalog, announced once.

The log belongs to its writer alone, so nothing is appended to it, and whoever opens such a session
owns it at once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

from flightlog import event as events
from flightlog.bus.answer import Acked, Conflict
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.patience import ANSWER_TIMEOUT
from flightlog.bus.protocol import Message, Outgoing
from flightlog.cache.catalog import Cursor, Filter, Row
from flightlog.cache.store import Store
from flightlog.errors import BusUnavailable, FlightlogError, InvalidEvent
from flightlog.event import Event
from flightlog.running import alive
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.layout import NOTICE_STREAM, STALLED
from flightlog_recorder.service.ears import Ears
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.stored import stored_at

EVERY = 30.0  # seconds between two looks at most

_log = logging.getLogger("flightlog.recorder")


class Watch:
    """Looks at the running sessions of the catalog, again and again.

    `after` is how many seconds one may go without event or beat.
    """

    def __init__(self, bus: NatsBus, store: Store, metrics: Metrics, *, after: float) -> None:
        self._bus, self._store, self._metrics, self._after = bus, store, metrics, after
        self._ears: dict[str, Ears] = {}

    async def run(self, tenants: Collection[str]) -> None:
        """Go on until cancelled; what NATS or Redis does not tell now is looked at later."""
        while True:
            for tenant in sorted(tenants):
                try:
                    await self.look(tenant)
                except FlightlogError as exc:
                    _log.warning("stalled sessions of %s were not looked for: %s", tenant, exc)
            await asyncio.sleep(min(EVERY, self._after / 4))

    async def look(self, tenant: str) -> None:
        """Mark and announce what is stalled now, and take the mark from what is heard again."""
        ears = await self._listening(tenant)
        ears.forget(self._after)
        silent, marked = list[Row](), 0
        async for row in self._quiet(tenant):
            if not ears.is_silent(row.session, self._after):
                if row.stalled is not None:
                    await self._store.note_stalled(row, None)
            elif row.stalled is None:
                silent.append(row)
            else:
                marked += 1
        patience = min(alive.SILENCE, self._after)  # the beat that was due may have been missed
        dead = await ears.unanswered((row.session for row in silent), patience)
        for row in silent:
            marked += row.session in dead and await self._mark(row)
        self._metrics.stalled.labels(tenant).set(marked)

    async def _listening(self, tenant: str) -> Ears:
        if tenant not in self._ears:
            ears = Ears(self._bus, tenant)
            await ears.open()
            self._ears[tenant] = ears
        return self._ears[tenant]

    async def _quiet(self, tenant: str) -> AsyncIterator[Row]:
        """The rows of running sessions without an event for so long, by their own clocks."""
        at: Cursor | None = Cursor(int((time.time() - self._after) * 1_000_000), "")
        while at is not None:
            page = await self._store.rows(tenant, Filter(status="running"), before=at)
            for row in page.rows:
                yield row
            at = page.after

    async def _mark(self, row: Row) -> bool:
        """Announce it, then mark it: a crash in between announces nothing twice."""
        if not await self._is_last_word(row):
            return False
        if await announce(self._bus, row):
            _log.warning("session %s is stalled since %s", row.session, row.last_ts)
        return await self._store.note_stalled(row, row.last_ts or events.now())

    async def _is_last_word(self, row: Row) -> bool:
        """Whether the log says no more than the row, and is as old, by the broker's clock."""
        prefix = self._bus.layout.prefix
        live = names.log_subject(row.tenant, row.session, "live", prefix=prefix)
        stream = self._bus.layout.stream_of(row.session)
        found = await stored_at(self._bus, stream, {"last_by_subj": live})
        if found is None or found[0] != row.read_to:
            return False
        return (datetime.now(UTC) - found[1]).total_seconds() >= self._after


async def announce(bus: NatsBus, row: Row) -> bool:
    """Say once, however many recorders see it, that a session is stalled after its last event.

    False if that is said. Raises `BusUnavailable`; doing it again is safe.
    """
    subject = names.notice_subject(row.tenant, row.session, prefix=bus.layout.prefix)
    before = await bus.last(NOTICE_STREAM, subject)
    if before is not None and _said_of(before) == row.seq:
        return False
    told = {"seq": row.seq, "since": row.last_ts, "key": row.key, "labels": row.labels}
    notice = events.compose(
        session_id=row.session,
        seq=0,
        type=STALLED,
        payload=carry.pack(told, where="notice"),
        prev=None,
        parent_seq=None,
        harness_version="",
    )
    message = Outgoing(notice.body, {"Flightlog-Type": STALLED})
    expected = before.sequence if before is not None else 0
    answer = await bus.append(subject, [message], expected=expected, timeout=ANSWER_TIMEOUT)
    match answer:
        case Acked():
            return True
        case Conflict():
            return False
        case _:
            raise BusUnavailable(NOTICE_STREAM, "the notice was not acknowledged")


def _said_of(message: Message) -> int | None:
    """The seq after which the session was said to be stalled."""
    with contextlib.suppress(InvalidEvent):
        found = events.decode(message.body)
        if isinstance(found, Event) and found.type == STALLED and isinstance(found.payload, dict):
            return found.payload.get("seq")
    return None
