"""Logs written by hand: events that chain, events that do not, in any order on a subject."""

from dataclasses import dataclass, field

from flightlog import event
from flightlog.bus.protocol import Message
from flightlog.event import Control, Event
from flightlog.wire import carry

SESSION = "sess_handmade"
SUBJECT = "flightlog.v1.0.acme.sess_handmade.live"


def follow(
    last: Event | None,
    *,
    type: str = "note",
    payload: object = None,
    seq: int | None = None,
    prev: str | None = None,
    session: str = SESSION,
) -> Event:
    """The event after `last`; `seq` and `prev` only for one that does not fit."""
    at = last.seq if last else 0
    return event.compose(
        session_id=session,
        seq=at + 1 if seq is None else seq,
        type=type,
        payload=carry.pack(payload),
        prev=prev or (last.digest if last else None),
        parent_seq=at or None,
        harness_version="1",
        ts="2026-05-06T14:23:01.123456Z",
    )


def takeover(last: Event | None, number: int, *, who: str = "") -> Event:
    """The event by which writer `number` takes the session; `who` tells equal numbers apart."""
    kind = "session_resumed" if last else "session_started"
    writer = {"number": number, "id": who or f"writer-{number}"}
    return follow(last, type=kind, payload={"writer": writer})


def chain(length: int, *, payload: object = None, session: str = SESSION) -> list[Event]:
    """`length` events that follow each other."""
    events: list[Event] = []
    for n in range(length):
        said = {"n": n, "more": payload}
        events.append(follow(events[-1] if events else None, payload=said, session=session))
    return events


def tombstone(*, session: str = SESSION) -> bytes:
    """The body of a tombstone."""
    return event.compose_control(session_id=session, type="tombstone", payload={"id": session})


def seal(events: list[Event], *, session: str = SESSION) -> bytes:
    """The body of the seal that ends a base of these events."""
    said = {"count": len(events), "digest": events[-1].digest if events else None}
    return event.compose_control(session_id=session, type="seal", payload=said)


@dataclass
class Subject:
    """One subject's messages; `put` stores a message as a broker without expectations would."""

    messages: list[Message] = field(default_factory=list[Message])
    step: int = 1  # what other sessions store in between, plus one

    def put(self, *stored: Event | Control | bytes) -> None:
        """Store messages after all others."""
        for each in stored:
            body = each if isinstance(each, bytes) else each.body
            last = self.messages[-1].sequence if self.messages else 0
            self.messages.append(Message(SUBJECT, last + self.step, body))
