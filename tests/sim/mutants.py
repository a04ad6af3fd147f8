"""Safeguards that can be switched off, to see that the simulation misses each of them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from flightlog import state as states
from flightlog.bus.answer import Acked, Answer, Conflict, Unclear
from flightlog.bus.protocol import Message
from flightlog.errors import Fenced
from flightlog.event import Event, decode
from flightlog.reading.chain import Chain, Head
from flightlog.reading.once import Reading
from flightlog.running import opening
from flightlog.state import SessionState
from flightlog.writing.writer import Action, Failed, Writer
from tests.sim.broker import FULL, Broker, Stream
from tests.sim.faults import Tamper

Patch = tuple[object, str, object]

MOST_SEEDS = 10_000  # in which each must be missed; those that need a tamper run 1 in 20 of them

_refusal, _answered = Broker.refusal, Writer.answered


def _no_expectation(broker: Broker, stream: Stream, subject: str, expected: int) -> bytes | None:
    """The header is not sent: the broker stores whatever comes."""
    if stream is not broker.log:
        return _refusal(broker, stream, subject, expected)
    return FULL if stream.full else None


def _no_compare(broker: Broker, stream: Stream, subject: str, expected: int) -> bytes | None:
    """Keys are put, not created."""
    free = subject.startswith("$KV.")
    return None if free else _refusal(broker, stream, subject, expected)


def _fits_by_seq(_: Chain, event: Event, head: Head) -> bool:
    return event.seq == head.seq + 1


def _nobody_in_force(chain: Chain, seq: int) -> int:
    del chain, seq
    return 1 << 30  # no later writer is ever higher


def _no_gap(chain: Chain, event: Event) -> None:
    del chain, event


def _fenced_at_once(writer: Writer, answer: Answer) -> Action:
    """A conflict is believed without a look at what is stored."""
    if isinstance(answer, Conflict):
        return Failed(Fenced(writer.session, writer.head.seq))
    return _answered(writer, answer)


def _stored_at_once(writer: Writer, answer: Answer) -> Action:
    """A conflict after an unclear try is taken for one's own event."""
    if isinstance(answer, Conflict) and answer.last:
        return _answered(writer, Acked("", answer.last))
    return _answered(writer, answer)


def _composed_anew(writer: Any, answer: Answer) -> Action:
    """What was sent does not keep its bytes: it is made again for the next try."""
    action = _answered(writer, answer)
    if isinstance(answer, Unclear):
        writer._sent = [_again(sent) for sent in writer._sent]
    return action


def _again(sent: Any) -> Any:
    body = sent.event.body.replace(b'"ts":"20', b'"ts":"21')
    return replace(sent, event=decode(body), message=replace(sent.message, body=body))


def _any_anchor(reading: Any, message: Message) -> bool:
    """The snapshot's own event is not looked at."""
    reading._anchored = True
    return bool(message.sequence == reading._anchor.sequence)


def _no_place(state: SessionState, taken: int | None) -> int:
    """How far the inbox is taken is not remembered."""
    del state, taken
    return 0


async def _as_far_as_seen(bus: Any, tenant: str, id: str, snapshot: Any, **_: Any) -> Any:
    """A replica's end is taken for the log's."""
    return await opening.fold(bus, tenant, id, snapshot)


def _no_seal(reading: Reading) -> bool:
    del reading
    return False  # a base counts as it stands


MUTANTS: dict[str, Patch] = {
    "the expectation": (Broker, "refusal", _no_expectation),
    "the chain check": (Chain, "_fits", _fits_by_seq),
    "the writer number": (Chain, "in_force", _nobody_in_force),
    "the gap check": (Chain, "_gap", _no_gap),
    "the read-back: fenced at once": (Writer, "answered", _fenced_at_once),
    "the read-back: stored at once": (Writer, "answered", _stored_at_once),
    "the same bytes again": (Writer, "answered", _composed_anew),
    "the compare-and-set of keys": (Broker, "refusal", _no_compare),
    "the snapshot's own event": (Reading, "_is_anchor", _any_anchor),
    "the leader's end": (opening, "to_the_end", _as_far_as_seen),
    "the seal": (Reading, "_base_open", property(_no_seal)),
    "the place in the inbox": (states, "_inbox", _no_place),
}

NEEDED: dict[str, Tamper] = {  # what a seed must have to miss these: the others are not run
    "the snapshot's own event": "damage",
    "the seal": "import",
}


@contextmanager
def without(safeguard: str) -> Generator[None]:
    """Switch a safeguard off."""
    where, name, instead = MUTANTS[safeguard]
    whole = getattr(where, name)
    setattr(where, name, instead)
    try:
        yield
    finally:
        setattr(where, name, whole)
