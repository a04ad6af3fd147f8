"""A context as the messages of a provider: the lines that a request's edits count."""

from typing import cast

from flightlog import anthropic
from flightlog.segment import Answer, Entries, Segment

NAMES = {"anthropic": anthropic.VIEW}  # a provider without a view of its own gets Anthropic's


def name(provider: str) -> str:
    """The rules by which a provider's view is written, with their version."""
    return NAMES.get(provider, anthropic.VIEW)


def lines(entries: Entries) -> list[bytes]:
    """The messages, each as compact JSON; entries that a request may not hold have none."""
    found = [line for segment in entries.closed for line in of_segment(segment) if line]
    found += [line for entry in entries.tail if (line := anthropic.line(entry))]
    return [anthropic.NOTICE, *found] if starts_with_answer(entries) else found


def starts_with_answer(entries: Entries) -> bool:
    """Whether the view needs a user's message first, which the provider demands."""
    first = next((entry for entry in entries if anthropic.line(entry) is not None), None)
    return isinstance(first, Answer)


def of_segment(segment: Segment) -> tuple[bytes | None, ...]:
    """The lines of a segment, None for entries without one; written once per segment."""
    known = segment.__dict__
    if "lines" not in known:
        known["lines"] = tuple(anthropic.line(entry) for entry in segment.entries)
    return cast("tuple[bytes | None, ...]", known["lines"])
