"""Sessions to measure with: a scripted conversation, and long logs made of cheap events."""

from collections.abc import Sequence
from random import Random
from typing import Any

from flightlog import CallModel, RunTools, Session
from flightlog import event as events
from flightlog import snapshot as snapshots
from flightlog import state as states
from flightlog.bus.answer import Acked
from flightlog.bus.protocol import Bus, Outgoing
from flightlog.cache.shelf import NOTHING, Shelf
from flightlog.event import WIRE_VERSION, Event
from flightlog.log import Log
from flightlog.snapshot import SESSION, Snapshot
from flightlog.wire import payload as payloads
from flightlog.wire import subject as names
from flightlog.wire.carry import pack
from flightlog.writing.writer import BATCH_EVENTS

TOOLS_A_TURN = 3
EVENTS_A_TURN = 2 + 2 * TOOLS_A_TURN
_TEXT = "The quick brown fox jumps over the lazy dog. " * 8
_SENTENCE = 'The "quick" brown fox jumps over the lazy dog; naïvely, some say.'
COMPACTED = 500  # events from one compaction to the next
_VOCABULARY = [f"{n * 40_503 % 65_536:05x}" for n in range(2_000)]
_SPOKEN = 1024  # characters
_FILLER = 730  # characters that make an event of 1 KiB
_TIMEOUT = 30.0  # seconds for one batch
_BATCH_BYTES = 400_000


async def converse(s: Session, turns: int) -> list[int]:
    """Record so many turns of a harness that passes its whole context; bytes of each request."""
    sizes: list[int] = []

    async def model(**request: Any) -> dict[str, Any]:
        sizes.append(len(pack(request)))
        return _message(len(sizes))

    async def look(**_: Any) -> str:
        return _TEXT

    await s.user_message(_TEXT)
    while len(sizes) < turns or isinstance(s.state.next, RunTools):
        match s.state.next:
            case RunTools(calls):
                for call in calls:
                    await s.tool_call(call, run=look)
            case CallModel():
                messages = s.state.messages("anthropic")
                await s.model_call({"model": "scripted", "messages": messages}, call=model)
            case _:
                break
    return sizes


def _message(turn: int) -> dict[str, Any]:
    calls = [
        {"type": "tool_use", "id": f"toolu_{turn}_{n}", "name": "look", "input": {"at": n}}
        for n in range(TOOLS_A_TURN)
    ]
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": _TEXT}, *calls],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 900, "output_tokens": 120},
    }


async def lengthen(log: Log, session: str, count: int) -> None:
    """Append checkpoints to a closed session until it holds `count` events; its context stays."""
    folded = await log.fold(session)
    seq, digest, last = folded.seq, folded.digest, folded.last_live
    raw = payloads.encode(payloads.Checkpoint(data=pack("x" * _FILLER)))
    made: list[Event] = []
    while seq < count:
        event = _compose(session, seq + 1, "checkpoint", raw, digest)
        seq, digest = event.seq, event.digest
        made.append(event)
        if len(made) == BATCH_EVENTS or seq == count:
            last = await store(log.bus, log.tenant, session, made, last)
            made = []


async def plant(log: Log, session: str, count: int) -> None:
    """Make a session of `count` cheap events from nothing."""
    writer = payloads.Writer(number=1, id="0" * 32)
    raw = payloads.encode(payloads.SessionStarted(writer=writer))
    await store(
        log.bus, log.tenant, session, [_compose(session, 1, "session_started", raw, None)], 0
    )
    await lengthen(log, session, count)


async def ramble(log: Log, session: str, count: int) -> None:
    """Make a session of messages of 1 KiB whose context is compacted again and again."""
    writer = payloads.Writer(number=1, id="0" * 32)
    begun = payloads.encode(payloads.SessionStarted(writer=writer))
    made = [_compose(session, 1, "session_started", begun, None)]
    last = 0
    while made[-1].seq < count:
        seq = made[-1].seq + 1
        if seq % COMPACTED:
            said = payloads.encode(payloads.UserMessage(content=pack(_words(seq))))
            made.append(_compose(session, seq, "user_message", said, made[-1].digest))
        else:
            short = payloads.Compact(summary=pack(_words(seq)), keep_from=seq - COMPACTED // 5)
            raw = payloads.encode(short)
            made.append(_compose(session, seq, "compact", raw, made[-1].digest))
        if len(made) > BATCH_EVENTS:
            last, made = await store(log.bus, log.tenant, session, made[:-1], last), made[-1:]
    await store(log.bus, log.tenant, session, made, last)


def _words(n: int) -> str:
    """A text of about 1 KiB that compresses as prose does."""
    chance = Random(n)  # noqa: S311 - words
    return " ".join(chance.choices(_VOCABULARY, k=170))


def spoken(session: str, count: int) -> list[Event]:
    """So many user messages of 1 KiB, no two alike."""
    made: list[Event] = []
    for n in range(count):
        said = payloads.UserMessage(content=pack(_spoken(n, "user")["content"]))
        prev = made[-1].digest if made else None
        made.append(_compose(session, n + 1, "user_message", payloads.encode(said), prev))
    return made


async def speak(log: Log, key: str, count: int) -> list[dict[str, Any]]:
    """Make a suspended session with a snapshot whose context is `count` messages of 1 KiB."""
    async with log.session(key=key) as s:
        session = s.id
    folded = await log.fold(session)
    seq, digest, said = folded.seq, folded.digest, list[dict[str, Any]]()
    made: list[Event] = []
    while len(said) < count:
        message = _spoken(len(said), "assistant" if len(said) % 2 else "user")
        said.append(message)
        for name, payload in _told(message):
            made.append(_compose(session, seq + 1, name, payloads.encode(payload), digest))
            seq, digest = made[-1].seq, made[-1].digest
    await store(log.bus, log.tenant, session, made, folded.last_live)
    await snapshot(log, session, behind=0)
    return said


def _spoken(n: int, role: str) -> dict[str, Any]:
    text = "".join([f"{n}.{at}: {_SENTENCE}\n" for at in range(16)])
    return {"role": role, "content": [{"type": "text", "text": text[:_SPOKEN]}]}


def _told(message: dict[str, Any]) -> list[tuple[str, Any]]:
    if message["role"] == "user":
        return [("user_message", payloads.UserMessage(content=pack(message["content"])))]
    return [
        ("model_request", payloads.ModelRequest(model="scripted")),
        ("model_response", payloads.ModelResponse(message=pack(message))),
    ]


def clone(template: Sequence[Event], session: str) -> list[Event]:
    """The same events under another session id."""
    copies: list[Event] = []
    for event in template:
        prev = copies[-1].digest if copies else None
        copies.append(events.rechain(event.body, session_id=session, prev=prev))
    return copies


async def store(bus: Bus, tenant: str, session: str, made: Sequence[Event], last: int) -> int:
    """Store events as atomic batches on `live`; the stream sequence of the last one."""
    subject = names.log_subject(tenant, session, "live", prefix=bus.layout.prefix)
    return await put(bus, subject, made, last)


async def put(bus: Bus, subject: str, made: Sequence[Event], last: int) -> int:
    """Store events as atomic batches on a subject; the stream sequence of the last one."""
    batch: list[Outgoing] = []
    size = 0
    for event in made:
        if batch and (size + len(event.body) > _BATCH_BYTES or len(batch) == BATCH_EVENTS):
            last = await _send(bus, subject, batch, last)
            batch, size = [], 0
        batch.append(Outgoing(event.body, _headers(event)))
        size += len(event.body)
    return await _send(bus, subject, batch, last)


async def _send(bus: Bus, subject: str, batch: list[Outgoing], last: int) -> int:
    answer = await bus.append(subject, batch, expected=last, timeout=_TIMEOUT)
    if not isinstance(answer, Acked):
        raise TypeError(f"a batch of the benchmark's own was answered {answer}")
    return answer.sequence


def _headers(event: Event) -> dict[str, str]:
    return {
        "Flightlog-Type": event.type,
        "Flightlog-Seq": str(event.seq),
        "Flightlog-Writer": "1",
    }


def _compose(session: str, seq: int, type: str, raw: Any, prev: str | None) -> Event:
    return events.compose(
        session_id=session,
        seq=seq,
        type=type,
        payload=raw,
        prev=prev,
        parent_seq=seq - 1 or None,
        harness_version="bench",
    )


async def snapshot(log: Log, session: str, *, behind: int) -> Snapshot:
    """Fold a session and store a snapshot that lies `behind` events before its end."""
    if log.store is None:
        raise TypeError("the benchmark's log has no Redis")
    wanted = (await log.fold(session)).seq - behind
    state, last = states.initial(), None
    async for event in log.read(session, until=wanted):
        state, last = states.apply(state, event), event
    if last is None:
        raise ValueError("a session that short has no snapshot")
    found = Snapshot(
        projection=SESSION.name,
        version=SESSION.version,
        schema=WIRE_VERSION,
        seq=last.seq,
        sequence=last.sequence,
        part="live",
        read_to=last.sequence,
        digest=last.digest,
        writers=state.writers,
        cut=snapshots.cut(SESSION, state),
    )
    shelf = Shelf(log.store, log.tenant, session, SESSION.name, SESSION.version)
    await shelf.save(found, NOTHING)
    return found
