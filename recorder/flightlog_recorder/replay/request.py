"""The exact request that a model was sent, made from the log and proved by its digest."""

import hashlib
from typing import Any

from msgspec import Struct

from flightlog import FlightlogError, context
from flightlog.wire import carry
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ModelRequest
from flightlog_recorder.replay.tape import Tape


class NoRequest(FlightlogError):
    """The event is no model_request."""

    def __init__(self, session: str, seq: int, found: str, nearest: int | None) -> None:
        self.session, self.seq = session, seq
        near = f"; the last one before it is {nearest}" if nearest is not None else ""
        super().__init__(f"event {seq} of session {session} is a {found}, no model_request{near}")


class Proved(Struct, frozen=True):
    """A request, and what proves it. `body` is its JSON; `exact`: those are the bytes hashed."""

    session: str
    seq: int
    upto: int
    digest: str
    request: dict[str, Any]
    body: bytes
    exact: bool


async def proved(tape: Tape, seq: int) -> Proved:
    """The request recorded at `seq`. Raises `CannotRebuild` if the log does not give its digest."""
    event = await tape.event(seq)
    asked = payloads.decode(event.type, await tape.payload(seq))
    if not isinstance(asked, ModelRequest):
        near = await tape.previous(seq, lambda each: each.type == "model_request")
        raise NoRequest(tape.session, seq, event.type, near)
    upto = asked.context.upto if asked.context else seq - 1
    request = context.rebuild(await tape.filled(upto), asked)
    digest = asked.context.digest if asked.context else ""
    body = bytes(carry.pack(request))
    exact = hashlib.sha256(body).hexdigest() == digest
    return Proved(tape.session, seq, upto, digest, request, body, exact)
