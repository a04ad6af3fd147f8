"""What a harness owes next, as `state.next` says it; made for `match`."""

import hashlib
from typing import Any

from msgspec import Struct


class Call(Struct, frozen=True):
    """A tool call that is to be run: the next attempt, 1 for the first.

    `announced_by` is the seq of the model_response that asked for it, None without one.
    `arguments` are Python values, marks resolved; lost content, of a call that waits for a person,
    is its `Blob`. `idempotency_key` is the same for every attempt
    and another one in a fork.
    """

    name: str
    call_id: str
    announced_by: int | None
    arguments: Any
    attempt: int
    idempotency_key: str


class CallModel(Struct, frozen=True):
    """Call the model with the state's messages."""


class RunTools(Struct, frozen=True):
    """Run these calls, in any order or at once.

    Empty: calls of this process still run, or are being closed after a timeout or cancellation;
    `await session.wait()`. A loop that awaits nothing never lets them end.
    """

    calls: tuple[Call, ...]


class Decide(Struct, frozen=True):
    """These calls wait for a person to say what became of them."""

    calls: tuple[Call, ...]


class AwaitUser(Struct, frozen=True):
    """Nothing is owed: say something, suspend or end the session."""


class Ended(Struct, frozen=True):
    """The session is over: completed, failed or cancelled."""

    status: str


Step = CallModel | RunTools | Decide | AwaitUser | Ended


def idempotency_key(session_id: str | None, announced_by: int | None, call_id: str) -> str:
    """The key that all attempts of a call share, 32 hex digits; for systems that drop repeats."""
    name = f"{session_id}\0{announced_by}\0{call_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(name).hexdigest()[:32]
