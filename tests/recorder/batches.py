"""Long logs, written by hand in batches."""

from collections.abc import Sequence

from flightlog import Log
from flightlog.bus.answer import Acked
from flightlog.bus.protocol import Outgoing
from flightlog.event import Event
from flightlog.wire import subject as names

BATCH = 200  # events


async def write_batches(log: Log, session: str, events: Sequence[Event]) -> None:
    """Store a session's events, with no writer in between."""
    subject, last = names.log_subject(log.tenant, session, "live"), 0
    for start in range(0, len(events), BATCH):
        sent = [Outgoing(event.body, {}) for event in events[start : start + BATCH]]
        answer = await log.bus.append(subject, sent, expected=last, timeout=5)
        assert isinstance(answer, Acked)
        last = answer.sequence
