"""A context as the messages of a provider: the lines that a request's edits count."""

from collections.abc import Iterator
from typing import cast

from flightlog import anthropic
from flightlog.segment import Answer, Entries, Segment

NAMES = {"anthropic": anthropic.VIEW}  # a provider without a view of its own gets Anthropic's


def name(provider: str) -> str:
    """The rules by which a provider's view is written, with their version."""
    return NAMES.get(provider, anthropic.VIEW)


def lines(entries: Entries) -> list[bytes]:
    """The messages, each as compact JSON; entries that a request may not hold have none."""
    found = [line for line in by_entry(entries) if line is not None]
    return [anthropic.NOTICE, *found] if starts_with_answer(entries) else found


def by_entry(entries: Entries) -> Iterator[bytes | None]:
    """For each entry its line, or None."""
    for segment in entries.closed:
        yield from of_segment(segment)
    yield from map(anthropic.line, entries.tail)


def starts_with_answer(entries: Entries) -> bool:
    """Whether the view needs a user's message first, which the provider demands."""
    first = next((entry for entry in entries if anthropic.line(entry) is not None), None)
    return isinstance(first, Answer)


def of_segment(segment: Segment) -> tuple[bytes | None, ...]:
    """The lines of a segment, None for entries without one; written once per segment."""
    known = vars(segment)
    if "lines" not in known:
        known["lines"] = tuple(anthropic.line(entry) for entry in segment.entries)
    return cast("tuple[bytes | None, ...]", known["lines"])
