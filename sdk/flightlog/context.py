"""A model_request's messages, stored by reference: what the log can derive is not stored again.

Let D be the lines of the context as it stands at event `upto`, written by the rules that `view`
names, and M the messages of the request, redacted, without their cache marks. `edits` makes M of D:
`[start, count]` copies lines of D, `[-1, count]` takes the next ones from `rest`; no edits at all
mean that M is D. `marks` are `[message, block, value]`: that block's last key is `cache_control`.
`params`, `unset` and `order` (of all top-level keys) say how the other fields differ from those of
the last main request. `digest` is the hex SHA-256 of the whole request as compact JSON.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from flightlog import carry, view
from flightlog.carry import Redact
from flightlog.edit import Edit
from flightlog.errors import FlightlogError, InvalidValue
from flightlog.payload import Context, ModelRequest, Purpose
from flightlog.state import SessionState

CACHE_MARK = "cache_control"

Mark = tuple[int, int, Raw]  # index of the message, of its block, the mark

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class CannotRebuild(FlightlogError):
    """The exact request cannot be made from this state."""

    def __init__(self, session: str | None, why: str) -> None:
        self.session = session
        super().__init__(f"the request cannot be rebuilt for session {session}: {why}")


def refer(
    state: SessionState,
    request: Mapping[str, Any],
    *,
    purpose: Purpose = "main",
    provider: str = "anthropic",
    redact: Redact | None = None,
) -> ModelRequest:
    """The payload that records the request, holding only what `state` does not.

    It must be appended before the context changes otherwise (user messages and tool events may come
    between). Costs time in proportion to the request. Raises `InvalidValue` for what JSON has no
    form for.
    """
    if not all(isinstance(key, str) for key in request):
        raise InvalidValue("request", "its keys must be text")
    model, messages, params = _split(request, redact)
    lines = view.lines(state.entries)
    sent, marks = _sent(messages or [], lines, redact)
    edits, rest = _edits(lines, sent) if messages is not None else ([], [])
    whole = _messages(sent, marks) if messages is not None else None
    order = tuple(request)
    context = Context(
        upto=state.seq,
        digest=_digest(_body(order, model, whole, params)),
        edits=edits,
        view=view.name(provider),
        marks=marks,
    )
    return ModelRequest(
        provider=provider,
        purpose=purpose,
        model=model,
        params={name: raw for name, raw in params.items() if state.params.get(name) != raw},
        unset=[name for name in state.params if name not in params],
        order=None if order == state.order else list(order),
        context=context,
        rest=[Raw(line) for line in rest],
    )


def rebuild(state: SessionState, payload: ModelRequest) -> dict[str, Any]:
    """The exact request, key order included, proved by its digest.

    `state` is the one at event `payload.context.upto`. Raises `CannotRebuild` for another state, a
    request whose context is not known (an import) and one that does not give the digest.
    """
    context = payload.context
    if context is None:
        raise CannotRebuild(state.session_id, "its context was not recorded")
    if state.seq != context.upto:
        raise CannotRebuild(state.session_id, f"it needs the state at seq {context.upto}")
    kept = {name: raw for name, raw in state.params.items() if name not in payload.unset}
    order = state.order if payload.order is None else tuple(payload.order)
    sent = _followed(view.lines(state.entries), context.edits, payload.rest)
    try:
        whole = _messages(sent, context.marks)
        body = _body(order, payload.model, whole, {**kept, **payload.params})
    except (KeyError, IndexError, TypeError, msgspec.DecodeError) as exc:
        raise CannotRebuild(state.session_id, "its edits do not fit the log") from exc
    if _digest(body) != context.digest:
        raise CannotRebuild(state.session_id, "it does not give the recorded digest")
    request: dict[str, Any] = carry.unpack(body)
    return request


def _split(
    request: Mapping[str, Any], redact: Redact | None
) -> tuple[str | None, Sequence[Any] | None, dict[str, Raw]]:
    """The model's name, the messages if there is a list of them, and every other field, packed."""
    model, messages = request.get("model"), request.get("messages")
    named = model if isinstance(model, str) else None
    listed = messages if isinstance(messages, list | tuple) else None
    apart = {"model"} if named is not None else set[str]()
    apart |= {"messages"} if listed is not None else set()
    params = {
        name: carry.pack(value, where=f"request.{name}", redact=redact)
        for name, value in request.items()
        if name not in apart
    }
    return redact(named) if redact and named is not None else named, listed, params


def _sent(
    messages: Sequence[Any], lines: Sequence[bytes], redact: Redact | None
) -> tuple[list[bytes], list[Mark]]:
    """The messages as lines, and their cache marks. What the log holds already is redacted."""
    known = set(lines) if redact else set[bytes]()
    sent, marks = list[bytes](), list[Mark]()
    for at, message in enumerate(messages):
        where = f"request.messages[{at}]"
        line, found = _unmarked(bytes(carry.pack(message, where=where)))
        if redact and line not in known:
            line, found = _unmarked(bytes(carry.pack(message, where=where, redact=redact)))
        sent.append(line)
        marks += [(at, block, carry.pack(mark, redact=redact)) for block, mark in found]
    return sent, marks


def _unmarked(line: bytes) -> tuple[bytes, list[tuple[int, Raw]]]:
    """The message without the cache marks that are the last key of their block, and these.

    Marks move with every request, and more than four are refused: they are of the request, not of
    the conversation.
    """
    if b'"cache_control"' not in line:
        return line, []
    message = _decode(line)
    content = message.get("content") if isinstance(message, dict) else None
    marks = list[tuple[int, Raw]]()
    for at, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict) and next(reversed(block), None) == CACHE_MARK:
            marks.append((at, Raw(_encode(block.pop(CACHE_MARK)))))
    return (_encode(message), marks) if marks else (line, [])


def _messages(sent: Sequence[bytes], marks: Sequence[Mark]) -> bytes:
    whole = list(sent)
    for at, block, mark in marks:
        message = _decode(whole[at])
        message["content"][block][CACHE_MARK] = mark
        whole[at] = _encode(message)
    return b"[" + b",".join(whole) + b"]"


def _edits(lines: Sequence[bytes], sent: Sequence[bytes]) -> tuple[list[Edit], list[bytes]]:
    """The spans that a walk finds: on with the next line, else the nearest later equal one."""
    if lines == sent:
        return [], []
    places = _places(lines)
    edits, rest, due = list[Edit](), list[bytes](), 0
    for line in sent:
        found = due if due < len(lines) and lines[due] == line else _nearest(places, line, due)
        if found < 0:
            rest.append(line)
        start, count = edits[-1] if edits else (-2, 0)
        if start + count == found or found == start == -1:
            edits[-1] = (start, count + 1)
        else:
            edits.append((found, 1))
        due = found + 1 if found >= 0 else due
    return edits or [(0, 0)], rest


def _places(lines: Sequence[bytes]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for at, line in enumerate(lines):
        found.setdefault(line, []).append(at)
    return found


def _nearest(places: dict[bytes, list[int]], line: bytes, due: int) -> int:
    found = places.get(line)
    if found is None:
        return -1
    return found[bisect_left(found, due) % len(found)]


def _followed(lines: Sequence[bytes], edits: Sequence[Edit], rest: Sequence[Raw]) -> list[bytes]:
    if not edits:
        return list(lines)
    sent, stored = list[bytes](), iter([_encode(_decode(message)) for message in rest])
    for start, count in edits:
        taken = lines[start : start + count] if start >= 0 else [next(stored) for _ in range(count)]
        sent += taken
    return sent


def _body(
    order: Sequence[str], model: str | None, messages: bytes | None, params: Mapping[str, Raw]
) -> bytes:
    fields = list[bytes]()
    for name in order:
        if name in params:
            value = bytes(params[name])
        elif name == "model":
            value = _encode(model)
        elif name == "messages" and messages is not None:
            value = messages
        else:
            raise KeyError(name)
        fields.append(_encode(name) + b":" + value)
    return b"{" + b",".join(fields) + b"}"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
