"""A context as the messages of a provider: the lines that a request's edits count."""

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from flightlog.messages import anthropic, providers
from flightlog.messages.provider import MOST_ID, MOST_NAME, Provider, Shown, fitting
from flightlog.messages.segment import Answer, Entries, Entry, Results, Segment, Sent
from flightlog.messages.turn import Asked, Given, Part, Turn

MADE = -1  # the place of a line that no entry is written as

Placed = tuple[int, bytes]  # the index of a line's entry, or MADE, and the line

_encode = msgspec.json.Encoder().encode


class Written(Struct, frozen=True, gc=False):
    """An entry as messages in compact JSON, as `Shown` has them."""

    lines: tuple[bytes, ...] = ()
    asks: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()


class Stretch(Struct, frozen=True):
    """Entries in a row as messages."""

    written: tuple[Written, ...]
    lines: tuple[bytes, ...]


def shown(entry: Entry, provider: Provider) -> Shown:
    """The entry as messages: its own provider's as they are, another one's converted."""
    match entry:
        case Answer() | Sent() if entry.provider != provider.NAME:
            said = providers.get(entry.provider).read(entry.message)
            return provider.write(_fitted(said)) if said else Shown()
        case Results() if entry.provider != provider.NAME:
            slots = [replace(s, call_id=fitting(s.call_id, most=MOST_ID)) for s in entry.slots]
            return provider.native(replace(entry, slots=tuple(slots)))
        case _:
            return provider.native(entry)


def written(entry: Entry, provider: Provider) -> Written:
    """The entry as lines; as none if they are nested too deep."""
    found = shown(entry, provider)
    try:
        return Written(tuple([_encode(m) for m in found.messages]), found.asks, found.gives)
    except RecursionError:
        return Written()


def _fitted(said: Turn) -> Turn:
    return Turn(said.role, tuple([_fitted_part(part) for part in said.parts]))


def _fitted_part(part: Part) -> Part:
    match part:
        case Asked(call_id, name, arguments):
            name = fitting(name, most=MOST_NAME)
            return Asked(fitting(call_id, most=MOST_ID), name, arguments)
        case Given():
            return replace(part, call_id=fitting(part.call_id, most=MOST_ID))
        case _:
            return part


def says_something(content: Raw) -> bool:
    """Whether there is anything to answer in what a user says."""
    return anthropic.says_something(content)


def lines(entries: Entries, provider: Provider) -> list[bytes]:
    """The messages, each as compact JSON.

    Each call has its result in the place where the provider wants it, whatever the context holds.
    """
    found = stretches(entries, provider)
    if not is_whole(entries, found):
        return [line for _, line in placed(entries, provider)]
    whole = [line for stretch in found for line in stretch.lines]
    return [*provider.opening(whole[0]), *whole] if whole else []


def line(entries: Entries, found: Sequence[Stretch], index: int, provider: Provider) -> bytes:
    """One of them, from the stretches; the rest is not put together. Raises `IndexError`."""
    if not is_whole(entries, found):
        return placed(entries, provider)[index][1]
    before = opening(found, provider)
    if 0 <= index < len(before):
        return before[index]
    left = index - len(before)
    for stretch in found:
        if 0 <= left < len(stretch.lines):
            return stretch.lines[left]
        left -= len(stretch.lines)
    raise IndexError(index)


def opening(found: Sequence[Stretch], provider: Provider) -> list[bytes]:
    """The lines that stand before the entries'."""
    first = next((line for stretch in found for line in stretch.lines), None)
    return [] if first is None else list(provider.opening(first))


def stretches(entries: Entries, provider: Provider) -> list[Stretch]:
    """What is written for the entries: a stretch for each segment, and one for the tail.

    That of a segment is made once per provider.
    """
    closed = [_of_segment(segment, provider) for segment in entries.closed]
    return [*closed, _stretch(entries.tail, provider)]


def _of_segment(segment: Segment, provider: Provider) -> Stretch:
    known = vars(segment)
    if provider.VIEW not in known:
        known[provider.VIEW] = _stretch(segment.entries, provider)
    return cast("Stretch", known[provider.VIEW])


def _stretch(entries: Sequence[Entry], provider: Provider) -> Stretch:
    found = tuple([written(entry, provider) for entry in entries])
    return Stretch(found, tuple([line for each in found for line in each.lines]))


def is_whole(entries: Entries, found: Sequence[Stretch]) -> bool:
    """Whether every call has its results behind it, so that no line is made up."""
    due = tuple[str, ...]()
    for segment, stretch in zip(entries.closed, found, strict=False):
        left = _open_after_segment(segment, stretch, due)
        if left is None:
            return False
        due = left
    return _open_after(found[-1].written, due) == ()


def _open_after_segment(
    segment: Segment, stretch: Stretch, due: tuple[str, ...]
) -> tuple[str, ...] | None:
    known, name = vars(segment), f"{id(stretch)} after {due}"
    if name not in known:
        known[name] = _open_after(stretch.written, due)
    return cast("tuple[str, ...] | None", known[name])


def placed(entries: Entries, provider: Provider) -> list[Placed]:
    """The lines with the index of the entry that each is written from."""
    found = [each for stretch in stretches(entries, provider) for each in stretch.written]
    return _placed(found, provider)


def _open_after(found: Iterable[Written], due: tuple[str, ...]) -> tuple[str, ...] | None:
    """The calls without result at the end; None when results and calls do not fit before it."""
    for each in found:
        if not each.lines:
            continue
        if not fits(each, due):
            return None
        due = each.asks
    return due


def fits(each: Shown | Written, due: Sequence[str]) -> bool:
    """Whether an entry gives the results that are due, and no others."""
    return each.gives == due or sorted(each.gives) == sorted(due)


def _placed(found: Sequence[Written], provider: Provider) -> list[Placed]:
    placed, due = list[Placed](), tuple[str, ...]()
    for at, each in enumerate(found):
        if not each.lines:
            continue
        if fits(each, due):
            placed += [(at, line) for line in each.lines]
        else:
            own = set(each.lines)
            made = provider.mended(each.lines, due)
            placed += [(at if line in own else MADE, line) for line in made]
        due = each.asks
    placed += [(MADE, line) for line in provider.mended([], due)] if due else []
    opening = provider.opening(placed[0][1]) if placed else []
    return [*((MADE, line) for line in opening), *placed]
