"""Blobs around a session's events: stored before them, at hand while the context needs them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from msgspec import UNSET, Raw
from msgspec.structs import replace

from flightlog.blobs import held
from flightlog.blobs.blob import AT_ONCE, Blobs
from flightlog.blobs.held import NOTHING, Held
from flightlog.blobs.spill import SPILLS, Limits, Spilled, spill, spills
from flightlog.errors import BlobCorrupt, BlobMissing
from flightlog.event import Event
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent
from flightlog.state import SessionState
from flightlog.wire import carry, chunk
from flightlog.wire.chunk import Blob
from flightlog.writing.draft import Draft

T = TypeVar("T")

_ATTACH = (
    "so nothing was recorded that refers to it: attach its content here first; "
    "s.attach(log.blob(OTHER, blob)) takes it from another session"
)
_SHORTENS = frozenset({"compact", "model_request"})  # events that may drop some of the context


class Holding:
    """Takes what is too large out of drafts, and gives a state the contents that it needs."""

    def __init__(self, blobs: Blobs, limits: Limits) -> None:
        self.blobs = blobs
        self._limits = limits
        self._new: dict[str, bytes] = {}
        self._known: set[Blob] = set()

    def know(self, blob: Blob) -> None:
        """That the session has this blob: this process has stored it."""
        self._known.add(chunk.content_of(blob))

    def takes(self, draft: Draft) -> bool:
        """Whether something of the draft may have to go into blobs, or to be looked for there."""
        return spills(draft.type, draft.payload, self._limits) or bool(self._unknown(draft))

    def _unknown(self, draft: Draft) -> set[Blob]:
        return {chunk.content_of(blob) for blob in held.references(draft.payload)} - self._known

    def is_crowded(self, type: str, raw: Raw) -> bool:
        """Whether more is left of the payload than a message surely holds."""
        return len(raw) > self.blobs.chunk_size < len(spill(type, raw, self._limits)[0])

    async def stow(self, draft: Draft, state: SessionState) -> Draft:
        """The draft as it can be appended, what it refers to being stored. Raises as `Blobs`."""
        if unknown := self._unknown(draft):
            await self._find(unknown, state)
        stowed, spilled = await stow(self.blobs, draft, self._limits)
        self._new |= {each.blob.digest: each.content for each in spilled}
        return stowed

    async def _find(self, unknown: set[Blob], state: SessionState) -> None:
        """See that the session has blobs that its author refers to, and will have them still.

        What the log refers to already is damaged, if at all, whatever is appended.
        """
        logged = {chunk.content_of(blob) for raw in _raws(state) for blob in held.references(raw)}
        for blob in unknown - logged:
            try:
                await self.blobs.renew(blob)
            except BlobMissing as exc:
                raise BlobMissing(exc.session, exc.digest, _ATTACH) from None
            except BlobCorrupt as exc:
                why = f"{exc.why}; nothing was recorded that refers to it"
                raise BlobCorrupt(exc.session, exc.digest, why) from None
        self._known |= unknown

    def after(self, before: SessionState, event: Event, state: SessionState) -> SessionState:
        """The state after an event, with the contents that it needs and no others."""
        known = NOTHING if before.held is UNSET else before.held
        referred = {blob.digest for blob in held.references(event.raw)}
        new = {name: self._new.pop(name) for name in referred if name in self._new}
        if not new and not (event.type in _SHORTENS and (known.contents or known.damaged)):
            return state
        wanted = {blob.digest for blob in needed(state)}
        return replace(state, held=known.added(new).kept(wanted))

    async def fetch(self, state: SessionState) -> SessionState:
        """The state with the contents that it needs; those that cannot be had stay named in it."""
        if state.blobs is UNSET:
            return state
        known = NOTHING if state.held is UNSET else state.held
        wanted = dict[str, set[Blob]]()
        for blob in needed(state):
            wanted.setdefault(blob.digest, set()).add(chunk.content_of(blob))
        had = known.kept(set(wanted)).contents
        contents, damaged = dict(had), dict[str, str]()

        async def read(digest: str) -> None:
            for blob in wanted[digest]:  # one that is wrong spoils no other
                try:
                    contents[digest] = await self.blobs.read(blob)
                except BlobMissing:
                    pass
                except BlobCorrupt as exc:
                    damaged[digest] = exc.why
            if digest in contents:
                damaged.pop(digest, None)

        await _few_at_once(read, [digest for digest in wanted if digest not in had])
        return replace(state, held=Held(contents, damaged))

    async def whole(self, raw: Raw, known: Held = NOTHING) -> Raw:
        """The JSON with its blobs in place; what was attached stays a reference."""
        wanted = held.inlined(held.references(raw))
        if not wanted:
            return raw
        contents = dict[str, bytes]()
        for blob in wanted:
            if blob.digest not in contents:
                content = known.contents.get(blob.digest)
                contents[blob.digest] = content or await self.blobs.read(blob)
        found = Held(contents)
        return held.whole(raw, lambda blob: found.get(self.blobs.session, blob))

    async def unpacked(self, raw: Raw, known: Held = NOTHING) -> Any:
        """The value in the JSON, blobs in place."""
        return carry.unpack(await self.whole(raw, known))


async def stow(blobs: Blobs, draft: Draft, limits: Limits = SPILLS) -> tuple[Draft, list[Spilled]]:
    """The draft as it can be appended, and what it refers to, which is stored."""
    if not spills(draft.type, draft.payload, limits):
        return draft, []
    cut = replace(limits, chunk=blobs.chunk_size)
    payload, spilled = spill(draft.type, draft.payload, cut)
    await _few_at_once(lambda each: blobs.store(each.blob, each.content), spilled)
    return replace(draft, payload=payload), spilled


async def _few_at_once(work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    for at in range(0, len(items), AT_ONCE):
        await asyncio.gather(*map(work, items[at : at + AT_ONCE]))


def needed(state: SessionState) -> Iterator[Blob]:
    """The blobs whose content messages, open calls, the checkpoint or the result consist of."""
    for raw in _raws(state):
        yield from held.inlined(held.references(raw))


def _raws(state: SessionState) -> Iterator[Raw]:
    for entry in state.entries:
        yield from _of_entry(entry)
    for call in state.calls:
        yield call.arguments
        yield call.output
        if call.result is not None:
            yield call.result.output
    yield from state.params.values()
    if state.ahead is not UNSET:
        yield from [each.message for each in state.ahead]
    yield state.result
    if state.checkpoint is not None:
        yield state.checkpoint.data


def _of_entry(entry: Entry) -> Iterable[Raw]:
    match entry:
        case Sent() | Answer():
            return (entry.message,)
        case Said():
            return (entry.content,)
        case Results():
            return [slot.output for slot in entry.slots]
