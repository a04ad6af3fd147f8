"""A context as the messages of a provider, as new values: what a harness passes to a model.

A segment is decoded at once, and nearly all that was said in it is a message as it stands.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from flightlog.messages import turn, view
from flightlog.messages.provider import Provider, Shown
from flightlog.messages.segment import Entries, Results, Segment, Sent
from flightlog.wire import carry

Message = dict[str, Any]


class _Said(Struct, tag="user", gc=False):
    """`segment.Said`, its content as a value."""

    content: Any


class _Answer(Struct, tag="assistant", gc=False):
    """`segment.Answer`, its message as a value."""

    message: Any
    provider: str = "anthropic"


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Said | _Answer | Results | Sent]).decode


def of(entries: Entries, provider: Provider, told: Callable[[bytes], Any]) -> list[Message] | None:
    """The messages; None when some of them are made up, as only `view.lines` does that.

    `told` reads a line that holds marks.
    """
    found, due = list[Message](), tuple[str, ...]()
    first: Message | None = None
    try:
        for each in _all(entries, provider):
            if isinstance(each, dict):
                if due:
                    return None
                first = first or each
                found.append(each)
            elif each.messages:
                if (due or each.gives) and not view.fits(each, due):
                    return None
                first, due = first or each.messages[0], each.asks
                found += each.messages if each.words else _told(each.messages, told)
        opening = provider.opening(_encode(first)) if first else []
    except RecursionError:
        return None
    return None if due else [*map(told, opening), *found]


def _told(messages: Sequence[Message], told: Callable[[bytes], Any]) -> list[Message]:
    """The messages with their marks resolved; what is then none any more is left out."""
    lines = [_encode(message) for message in messages]
    pairs = zip(messages, lines, strict=True)
    found = [told(line) if carry.is_marked(line) else message for message, line in pairs]
    return [message for message in found if isinstance(message, dict)]


def _all(entries: Entries, provider: Provider) -> Iterator[Message | Shown]:
    """What is shown of each entry in turn; a message of words alone, as most are, is itself."""
    for segment in (*entries.closed, Segment(entries.tail)):
        try:
            spoken = _decode(segment.written)
        except _UNREADABLE:
            yield from [view.shown(entry, provider) for entry in segment.entries]
            continue
        for at, each in enumerate(spoken):
            if isinstance(each, _Said) and turn.are_words(each.content):
                yield {"role": "user", "content": each.content}
            elif isinstance(each, _Answer) and each.provider == provider.NAME:
                made = provider.answer(each.message)
                if made.words:
                    yield made.messages[0]
                else:
                    yield view.shown(segment.entries[at], provider) if _is_marked(segment) else made
            elif isinstance(each, Results | Sent):
                yield view.shown(each, provider)
            else:
                yield view.shown(segment.entries[at], provider)


def _is_marked(segment: Segment) -> bool:
    known = vars(segment)
    if "marked" not in known:
        known["marked"] = carry.is_marked(segment.written)
    return bool(known["marked"])
