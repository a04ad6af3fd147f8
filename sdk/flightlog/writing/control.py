"""Control messages: the seal of a base, and the tombstone that whoever comes late will meet."""

import asyncio

from flightlog import clock
from flightlog import event as events
from flightlog.bus.answer import Acked, Conflict, Full
from flightlog.bus.patience import ANSWER_TIMEOUT, pause
from flightlog.bus.protocol import Bus, Message, Outgoing
from flightlog.errors import BusUnavailable, FlightlogError, LogCorrupt, LogFull

TOMBSTONE_LIFE = 90 * 86_400  # seconds that a tombstone stays to meet late writers
DEADLINE = 30.0  # seconds for a control message to be acknowledged


def seal(session: str, *, count: int, digest: str | None, writer: int) -> Outgoing:
    """The seal of a base: how many events it has, and the digest of the last."""
    said = {"count": count, "digest": digest}
    body = events.compose_control(session_id=session, type="seal", payload=said)
    return Outgoing(body, {"Flightlog-Type": "seal", "Flightlog-Writer": str(writer)})


def tombstone(
    session: str, *, digest: str | None, by: str, why: str, life: int = TOMBSTONE_LIFE
) -> Outgoing:
    """A tombstone; `digest` is that of the last event. The server drops it after `life` seconds."""
    said = {"id": session, "when": events.now(), "by": by, "why": why, "digest": digest}
    body = events.compose_control(session_id=session, type="tombstone", payload=said)
    return Outgoing(body, {"Flightlog-Type": "tombstone", "Nats-TTL": f"{life}s"})


async def store(
    bus: Bus,
    subject: str,
    message: Outgoing,
    session: str,
    expected: int,
    *,
    deadline: float = DEADLINE,
) -> int | Message:
    """Store one control message; its stream sequence, or the message that stands in its place.

    The answer table of DESIGN section 4: what is unclear is sent again, byte for byte.
    """
    stream = bus.layout.stream_of(session)
    until = clock.elapsed() + deadline
    attempt = 0
    while attempt == 0 or clock.elapsed() < until:
        answer = await bus.append(subject, [message], expected=expected, timeout=ANSWER_TIMEOUT)
        match answer:
            case Acked(sequence=sequence):
                return sequence
            case Conflict(last=last) if last is not None and last < expected:
                raise _rolled_back(session, expected, last)
            case Conflict():
                if (found := await bus.after(stream, subject, expected)) is not None:
                    return found.sequence if found.body == message.body else found
            case Full() if not attempt:
                raise LogFull(session, stream)
            case _:
                pass  # unclear, or refused after a try that was: only the log can tell
        attempt += 1
        await asyncio.sleep(pause(attempt))
    raise BusUnavailable(stream, "no ack in time", session=session)


def _rolled_back(session: str, expected: int, last: int) -> FlightlogError:
    wanted = f"a last stream sequence of {expected} or more"
    return LogCorrupt(session, 0, expected=wanted, found=str(last))
