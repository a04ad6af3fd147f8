"""Words in events, also where these lie in blobs; what is large is named, not fetched."""

import re
from collections.abc import Awaitable, Callable

from msgspec import Raw

from flightlog import BlobCorrupt, BlobMissing
from flightlog.blobs import held
from flightlog.errors import InvalidEvent
from flightlog.event import Event
from flightlog.wire import carry

MOST_SHOWN = 1 << 20  # bytes of blobs that an event is shown with
MOST_SEARCHED = 16 << 20  # bytes of blobs that one event is searched with
MOST_FETCHED = 256 << 20  # bytes of blobs of one search

Whole = Callable[[Event], Awaitable[Raw]]


def blob_bytes(event: Event) -> int:
    """The size of what the event refers to."""
    return sum(blob.size for blob in held.references(event.raw))


async def near(event: Event, whole: Whole) -> Raw:
    """The event's payload: with its blobs in place if these are small and there, else as stored."""
    if not 0 < blob_bytes(event) <= MOST_SHOWN:
        return event.raw
    try:
        return await whole(event)
    except (BlobMissing, BlobCorrupt):
        return event.raw


class Words:
    """A search for words. `skipped` counts the events whose blobs were too much, or not there."""

    def __init__(self, words: re.Pattern[str], whole: Whole) -> None:
        self._words, self._whole, self._left = words, whole, MOST_FETCHED
        self.skipped = 0

    async def found(self, event: Event) -> bool:
        """Whether a text or key in the payload, or the type, has the words in it."""
        if self._words.search(event.type) or self._holds(event.raw):
            return True
        if not (size := blob_bytes(event)):
            return False
        if size > min(MOST_SEARCHED, self._left):
            self.skipped += 1
            return False
        self._left -= size
        try:
            return self._holds(await self._whole(event))
        except (BlobMissing, BlobCorrupt):
            self.skipped += 1
            return False

    @property
    def told(self) -> str | None:
        """What was not searched, if anything."""
        if not self.skipped:
            return None
        events = "1 event" if self.skipped == 1 else f"{self.skipped:,} events"
        return f"not searched: the blobs of {events}, which are too large or not there"

    def _holds(self, raw: Raw) -> bool:
        try:
            value = carry.unpack(raw)
        except InvalidEvent:
            return self._words.search(bytes(raw).decode("utf-8", "replace")) is not None
        return any(self._words.search(text) for text in _texts(value))


def _texts(value: object) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                found.append(text)
            case dict() as fields:
                waiting += [*fields, *fields.values()]
            case list() as items:
                waiting += items
            case None:
                pass
            case other:
                found.append(str(other))
    return found
