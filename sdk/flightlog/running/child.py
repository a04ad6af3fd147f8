"""Children: sessions that another session opens, one for each tool call (sub-agents)."""

from collections.abc import Generator
from contextlib import contextmanager

import msgspec
from msgspec import Raw

from flightlog.errors import CallRefused, InvalidValue
from flightlog.lineage import Parent
from flightlog.running.journal import Journal
from flightlog.state import SessionState
from flightlog.step import Call
from flightlog.wire.payload import CallRef

_encode = msgspec.json.Encoder().encode


def parent_of(journal: Journal, call: Call | None, call_id: str | None, name: str | None) -> Parent:
    """What the child of a call says of its origin; without a call, its name tells it apart.

    Raises `CallRefused` for a call that the parent does not know, as that may be another session's.
    """
    if call is not None:
        ref = CallRef(call_id=call.call_id, announced_by=call.announced_by)
    elif call_id is not None:
        ref = _latest(journal.session, journal.state, call_id)
    elif name:
        return Parent(journal.session, name=name)
    else:
        raise InvalidValue("child", "give the call that opens it, or a name")
    return Parent(journal.session, ref.call_id, ref.announced_by, name=name or None)


def _latest(session: str, state: SessionState, call_id: str) -> CallRef:
    """The call of that id; servers repeat ids, so the one that was started last."""
    found = [call for call in state.calls if call.call_id == call_id and call.phase != "announced"]
    if found:
        return max(found, key=lambda call: call.seq).ref
    if (known := state.call(None, call_id)) is not None:
        return known.ref
    raise CallRefused(session, f"no call {call_id} is under way, so it can open no child")


def key_of(parent: Parent) -> str:
    """The key that stands for the one child of a call, in whatever process its parent resumes."""
    if parent.call_id is None:
        return f"{parent.session}/{parent.name}"
    return f"{parent.session}/{parent.announced_by or 'own'}/{parent.call_id}"


def encoded(parent: Parent) -> Raw:
    """The parent as session_started holds it."""
    return Raw(_encode(parent))


@contextmanager
def under(parent: Journal, child: Journal) -> Generator[None]:
    """What stops the parent stops the child first, which leaves its own calls in flight."""
    parent.children.add(child)
    if parent.halted:
        child.halt()
    try:
        yield
    finally:
        parent.children.discard(child)
