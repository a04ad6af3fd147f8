"""A model_request's messages, stored by reference: what the log can derive is not stored again.

Let D be the lines of the context as it stands at event `upto`, written by the rules that `view`
names, and M the messages of the request, redacted, without their cache marks. `edits` makes M of D:
`[start, count]` copies lines of D, `[-1, count]` takes the next ones from `rest`, `[-2, count]` the
next ones that `patches` make of lines of D; no edits at all mean that M is D. `marks` are
`[message, block, value]`: that block's last key is `cache_control`.
Events `model_messages` before it hold what has no room in a request: D ends with their messages.
`params`, `param_patches` (of values that are known), `unset` and `order` (of all top-level keys)
say how the other fields differ from those of the last main request; `$lead` in them is a list of
messages that the request begins with, before M.
`digest` is the hex SHA-256 of the whole request as compact JSON.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from flightlog.blobs import held
from flightlog.errors import FlightlogError, InvalidValue
from flightlog.messages import params, patch, providers, turn
from flightlog.messages.edit import PATCHED, REST, Edit
from flightlog.messages.patch import Patch
from flightlog.messages.provider import Provider
from flightlog.state import SessionState
from flightlog.wire import carry
from flightlog.wire.carry import Redact
from flightlog.wire.payload import Context, ModelMessages, ModelRequest, Purpose

CACHE_MARK = "cache_control"
LEAD = "$lead"  # the system messages that a request of some providers begins with, among `params`

PATCHES = (
    64 * 1024
)  # bytes of a request's patches: they stay in its event, what is `rest` may leave
END = 128  # bytes by which messages are taken to be alike: enough for the id of a call
_NOWHERE = -3
_PENDING = turn.PENDING.encode()

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
    provider: str | None = None,
    redact: Redact | None = None,
) -> ModelRequest:
    """The payload that records the request, holding only what `state` does not.

    It must be appended before the context changes otherwise (user messages and tool events may come
    between). Costs time in proportion to the request. Raises `InvalidValue` for what JSON has no
    form for.
    """
    keys: list[object] = list(request)
    if not all(isinstance(key, str) for key in keys):
        raise InvalidValue("request", "its keys must be text")
    if LEAD in request:
        raise InvalidValue("request", f"no field of it may be called {LEAD}")
    provider = state.provider if provider is None else provider
    form = providers.get(provider)
    model, messages, fields = _split(request, form, redact)
    walk = _Walk(state, form, redact)
    whole = walk.through(messages)
    order = tuple(request)
    context = Context(
        upto=state.seq,
        digest=_digest(_body(order, model, whole, fields)),
        edits=walk.edits(),
        view=form.VIEW,
        marks=walk.marks,
    )
    return ModelRequest(
        provider=provider,
        purpose=purpose,
        model=model,
        **_told(state, fields),
        order=None if order == state.order else list(order),
        context=context,
        rest=walk.rest,
        patches=walk.patches,
    )


def ahead(asked: ModelRequest, *, most: int) -> Iterator[ModelMessages]:
    """The rest of a request in events before it, each of about `most` bytes.

    Once they are appended, `refer` finds the messages there.
    """
    part, size = list[Raw](), 0
    for message in asked.rest:
        if part and size + len(message) > most:
            yield ModelMessages(provider=asked.provider, messages=part)
            part, size = [], 0
        part.append(message)
        size += len(message)
    yield ModelMessages(provider=asked.provider, messages=part)


def rebuild(state: SessionState, payload: ModelRequest) -> dict[str, Any]:
    """The exact request, key order included, proved by its digest.

    `state` is the one at event `payload.context.upto`, from `Log.state`, and what of the payload
    lies in blobs is in its place. Raises `CannotRebuild` for another state, a
    request whose context is not known (an import) and one that does not give the digest.
    """
    context = payload.context
    if context is None:
        raise CannotRebuild(state.session_id, "its context was not recorded")
    if state.seq != context.upto:
        raise CannotRebuild(state.session_id, f"it needs the state at seq {context.upto}")
    if (form := providers.of_view(context.view)) is None:
        raise CannotRebuild(state.session_id, f"its rules are not known here: {context.view}")
    known = {name: raw for name, raw in state.params.items() if name not in payload.unset}
    fields = {name: state.whole(raw) for name, raw in known.items()} | payload.params
    order = state.order if payload.order is None else tuple(payload.order)
    try:
        fields |= params.patched(payload.param_patches, state.known)
        whole = _messages(_followed(state, form, payload, context), context.marks)
        body = _body(order, payload.model, whole, fields)
    except (*patch.UNFIT, TypeError) as exc:
        raise CannotRebuild(state.session_id, "its edits do not fit the log") from exc
    if _digest(body) != context.digest:
        raise CannotRebuild(state.session_id, "it does not give the recorded digest")
    request: dict[str, Any] = carry.unpack(b"".join(body))
    return request


def _told(state: SessionState, fields: Mapping[str, Raw]) -> dict[str, Any]:
    """How the fields differ from those of the last main request."""
    new = {name: raw for name, raw in fields.items() if not _is_known(state, name, raw)}
    patches = _param_patches(state, new)
    return {
        "params": {name: raw for name, raw in new.items() if name not in patches},
        "param_patches": patches,
        "unset": [name for name in state.params if name not in fields],
    }


def _is_known(state: SessionState, name: str, value: Raw) -> bool:
    known = state.params.get(name)
    return known is not None and held.is_same(known, value)


def _param_patches(state: SessionState, fields: Mapping[str, Raw]) -> dict[str, Patch]:
    """What can be told of known values."""
    found, room = dict[str, Patch](), PATCHES
    for name, raw in fields.items():
        made = params.patch_of(raw, state.known(name))
        if made is not None and (size := len(_encode(made))) <= room:
            found[name] = made
            room -= size
    return found


def _split(
    request: Mapping[str, Any], form: Provider, redact: Redact | None
) -> tuple[str | None, Sequence[Any] | None, dict[str, Raw]]:
    """The model's name, the messages if there is a list of them, and every other field, packed."""
    model, messages = request.get("model"), request.get("messages")
    named = model if isinstance(model, str) else None
    listed = messages if isinstance(messages, list | tuple) else None
    apart = {"model"} if named is not None else set[str]()
    apart |= {"messages"} if listed is not None else set()
    fields = {
        name: carry.pack(value, where=f"request.{name}", redact=redact)
        for name, value in request.items()
        if name not in apart
    }
    lead = _lead(listed or (), form)
    if listed is not None and lead:
        fields[LEAD] = carry.pack(listed[:lead], where="request.messages", redact=redact)
        listed = listed[lead:]
    return redact(named) if redact and named is not None else named, listed, fields


def _lead(messages: Sequence[Any], form: Provider) -> int:
    """How many messages at the head are the request's own, and no part of the conversation."""
    roles = [each.get("role") if isinstance(each, Mapping) else None for each in messages]
    leading = takewhile(lambda role: isinstance(role, str) and role in form.LEADS, roles)
    return sum(1 for _ in leading)


class _Walk:
    """Goes through a request's messages and finds each in the context, or keeps it as rest."""

    def __init__(self, state: SessionState, form: Provider, redact: Redact | None) -> None:
        self._folded = state.referable(form)
        self._lines = [state.made_whole(line) for line in self._folded]
        self._redact, self._is_context = redact, state.ahead is UNSET
        self._due = 0
        self._places: dict[bytes, list[int]] = {}
        self._spans: list[Edit] = []
        self._walked = False
        self.sent: list[bytes] = []
        self.marks: list[Mark] = []
        self.rest: list[Raw] = []
        self.patches: list[Patch] = []
        self._ends: dict[bytes, list[int]] = {}
        self._room = PATCHES

    def through(self, messages: Sequence[Any] | None) -> bytes:
        """Take all of them, and return them as JSON."""
        whole = _joined(self._lines)
        if messages is None or (self._is_context and _is_written(messages, whole)):
            return whole
        self._walked = True
        for message in messages:
            self._take(message)
        return _messages(self.sent, self.marks)

    def _take(self, message: object) -> None:
        """Find the next message. What the log holds already is redacted, and is not again."""
        due = self._lines[self._due] if self._due < len(self._lines) else None
        if due is not None and _is_written(message, due):
            self._found(self._due, due)
            return
        line, marks = self._packed(message, None)
        place = self._nearest(line)
        if place < 0 and self._redact:
            line, marks = self._packed(message, self._redact)
            place = self._nearest(line)
        at = len(self.sent)
        self.marks += [(at, block, carry.pack(mark, redact=self._redact)) for block, mark in marks]
        if place < 0 and (made := self._patch(line)) is not None:
            self.patches.append(made)
            self._due, place = made[0], PATCHED
        self._found(place, line)

    def _patch(self, line: bytes) -> Patch | None:
        """The message as a patch of the one that is due, or of one that begins or ends like it."""
        for at in self._alike(line):
            made = patch.of(at, self._lines[at], line) if self._is_settled(at) else None
            if made is not None and (size := len(_encode(made))) <= self._room:
                self._room -= size
                return made
        return None

    def _is_settled(self, at: int) -> bool:
        """Whether all of a line is in its events, and none of it is still to come."""
        return self._lines[at] == self._folded[at] and _PENDING not in self._lines[at]

    def _alike(self, line: bytes) -> Iterator[int]:
        if self._due < len(self._lines):
            yield self._due
        if not self._ends:
            for at, known in enumerate(self._lines):
                for end in (known[:END], known[-END:]):
                    self._ends.setdefault(end, []).append(at)
        for end in (line[:END], line[-END:]):
            if (place := self._next_of(self._ends.get(end))) is not None:
                yield place

    def edits(self) -> list[Edit]:
        """The spans; none when the messages are the context itself, or there are none."""
        if not self._walked or (self._is_context and self._spans == [(0, len(self._lines))]):
            return []
        return self._spans or [(0, 0)]

    def _packed(
        self, message: object, redact: Redact | None
    ) -> tuple[bytes, list[tuple[int, Raw]]]:
        where = f"request.messages[{len(self.sent)}]"
        return _unmarked(bytes(carry.pack(message, where=where, redact=redact)))

    def _nearest(self, line: bytes) -> int:
        """The place of an equal line: the next one from where we are, else the first, else none."""
        if not self._places:
            for at, known in enumerate(self._lines):
                self._places.setdefault(known, []).append(at)
        place = self._next_of(self._places.get(line))
        return REST if place is None else place

    def _next_of(self, places: Sequence[int] | None) -> int | None:
        return places[bisect_left(places, self._due) % len(places)] if places else None

    def _found(self, place: int, line: bytes) -> None:
        self.sent.append(line)
        start, count = self._spans[-1] if self._spans else (_NOWHERE, 0)
        if place == REST:
            self.rest.append(Raw(line))
        else:
            self._due = place + 1 if place >= 0 else self._due + 1
        if place == (start if start < 0 else start + count):
            self._spans[-1] = (start, count + 1)
        else:
            self._spans.append((place, 1))


def _is_written(message: object, line: bytes) -> bool:
    """Whether the line is what `carry` makes of the message; a quick way to yes, no is a maybe.

    Equal bytes are not enough, as msgspec writes null for NaN and text for bytes; equal values are
    not either, as True equals 1.
    """
    try:
        same = _encode(message) == line
    except (TypeError, ValueError, RecursionError):
        return False
    return same and carry.MARK.encode() not in line and bool(_decode(line) == message)


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
    return _joined(whole)


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"


def _followed(
    state: SessionState, form: Provider, payload: ModelRequest, context: Context
) -> list[bytes]:
    lines = [state.made_whole(line) for line in state.referable(form)]
    if not context.edits:
        return lines
    sent, stored = list[bytes](), iter([_encode(_decode(message)) for message in payload.rest])
    made = iter([patch.applied(each, lines[each[0]]) for each in payload.patches])
    for start, count in context.edits:
        if start >= 0:
            sent += lines[start : start + count]
        else:
            sent += islice(made if start == PATCHED else stored, count)
    return sent


def _body(
    order: Sequence[str], model: str | None, messages: bytes, fields: Mapping[str, Raw]
) -> list[bytes]:
    """The request as JSON, in parts; what only `order` names is the model or the messages."""
    parts = list[bytes]()
    apart = {"model": _encode(model), "messages": _led(fields.get(LEAD), messages)}
    for name in order:
        value = bytes(fields[name]) if name in fields else apart[name]
        parts += [b"," if parts else b"{", _encode(name), b":", value]
    return [*(parts or [b"{"]), b"}"]


def _led(lead: Raw | None, messages: bytes) -> bytes:
    """The messages behind those that lead."""
    if lead is None or len(messages) <= len(b"[]"):
        return messages if lead is None else bytes(lead)
    return bytes(lead)[:-1] + b"," + messages[1:]


def _digest(parts: Sequence[bytes]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()
