"""What others ask of a session: they write to its inbox, its writer records the items as events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from flightlog.bus.answer import Acked, Conflict, Full, Oversized
from flightlog.bus.protocol import Bus, Outgoing
from flightlog.errors import BusUnavailable, LogFull, TooLarge
from flightlog.running import ruling
from flightlog.running.ruling import Owed
from flightlog.state import SessionState
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.carry import Redact
from flightlog.wire.layout import INBOX_STREAM
from flightlog.wire.payload import (
    NULL,
    CallRef,
    InboxRefused,
    SessionEnded,
    SessionSuspended,
    UserMessage,
)

_TIMEOUT = 5.0  # seconds for one answer
_TRIES = 5
_PAUSE = 0.2  # seconds between tries


class _Item(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    by: str = ""
    reason: str | None = None


class Decision(_Item, frozen=True, tag="decision"):
    """A person's ruling on a call whose outcome is unknown; `output` goes with `result`."""

    call: CallRef
    ruling: Literal["result", "rerun", "fail"]
    output: Raw = NULL


class Say(_Item, frozen=True, tag="user_message"):
    """A user message from outside the writing process."""

    content: Raw
    origin: Literal["human", "schedule", "peer", "system"] = "peer"


class Cancel(_Item, frozen=True, tag="cancel"):
    """End the session as cancelled."""


class Suspend(_Item, frozen=True, tag="suspend"):
    """Stop the work and leave the session to be resumed."""


Item = Decision | Say | Cancel | Suspend
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Item).decode


class Received(Struct, frozen=True):
    """An item at its place in the inbox; `item` is None for one this version cannot read."""

    sequence: int
    item: Item | None


async def send(bus: Bus, tenant: str, session: str, item: Item, *, id: str | None = None) -> int:
    """Put an item into the session's inbox; returns its stream sequence.

    Idempotent per `id`: a resend after a lost ack is stored once. Raises `TooLarge`, `LogFull`
    and `BusUnavailable`; after the last sending again with the same id is safe.
    """
    subject = names.inbox_subject(
        tenant, session, names.token("inbox id", id or names.mint()), prefix=bus.layout.prefix
    )
    body = _encode(item)
    for _ in range(_TRIES):
        answer = await bus.append(subject, [Outgoing(body, {})], expected=0, timeout=_TIMEOUT)
        match answer:
            case Acked(sequence=sequence):
                return sequence
            case Conflict(last=last):
                return last or 0
            case Full():
                raise LogFull(session, INBOX_STREAM)
            case Oversized(limit=limit):
                raise TooLarge("an item for the inbox", len(body), limit)
            case _:
                await asyncio.sleep(_PAUSE)
    raise BusUnavailable(INBOX_STREAM, "the item was not acknowledged", session=session)


async def received(bus: Bus, tenant: str, session: str, *, after: int) -> AsyncIterator[Received]:
    """The session's items behind stream sequence `after`, in order."""
    subject = names.inbox_subject(tenant, session, "*", prefix=bus.layout.prefix)
    more, start = True, after + 1
    while more:
        page = await bus.page(INBOX_STREAM, subject, start)
        for message in page.messages:
            yield Received(message.sequence, _read(message.body))
            start = message.sequence + 1
        more = page.more


def _read(body: bytes) -> Item | None:
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


def decision(
    call_id: str,
    *,
    announced_by: int | None,
    ruling: Literal["result", "rerun", "fail"],
    output: Any = None,
    by: str,
    reason: str | None = None,
) -> Decision:
    """A person's ruling, ready to be sent."""
    return Decision(
        call=CallRef(call_id=call_id, announced_by=announced_by),
        ruling=ruling,
        output=carry.pack(output, where="output"),
        by=by,
        reason=reason,
    )


def redacted(item: Item, redact: Redact | None) -> Item:
    """The item with every text and value of its author redacted."""
    if redact is None:
        return item
    texts = {"by": redact(item.by), "reason": item.reason and redact(item.reason)}
    match item:
        case Decision():
            output = carry.pack(item.output, where="output", redact=redact)
            return replace(item, output=output, **texts)
        case Say():
            content = carry.pack(item.content, where="content", redact=redact)
            return replace(item, content=content, **texts)
        case Cancel() | Suspend():
            return replace(item, **texts)
    assert_never(item)


def events_for(
    state: SessionState, received: Received, *, redact: Redact | None = None
) -> list[Owed]:
    """What records an item; each event names its place, so that taking it twice is harmless."""
    at, item = received.sequence, received.item and redacted(received.item, redact)
    if at <= state.inbox:
        return []
    match item:
        case None:
            return [Owed(InboxRefused(inbox=at, why="this version cannot read it"))]
        case Decision():
            return ruling.on_decision(
                state,
                item.call,
                item.ruling,
                output=item.output,
                by=item.by,
                reason=item.reason,
                inbox=at,
            )
        case Say():
            return [Owed(UserMessage(content=item.content, origin=item.origin, inbox=at))]
        case Cancel():
            return [Owed(SessionEnded(status="cancelled", error=item.reason, inbox=at))]
        case Suspend():
            return [Owed(SessionSuspended(reason=item.reason or "asked to", inbox=at))]
    assert_never(item)
