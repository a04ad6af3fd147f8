"""A patch: a value as what it shares with a known one, and the text that stands between. Pure.

Prompts with the time in their last line, and reminders inside of a message that is there already,
then cost what is new in them.
"""

import msgspec

from flightlog.wire import carry

# Which known value (the place of a line, the CRC-32 of a field's), how many bytes of its head and
# of its tail, and what is between them.
Patch = tuple[int, int, int, str]

LEAST = 256  # bytes that a patch must save
UNFIT = (LookupError, ValueError, msgspec.DecodeError, RecursionError)
MOST = 16 * 1024  # bytes between head and tail: what is larger may have to go into a blob


def of(which: int, known: bytes, value: bytes) -> Patch | None:
    """The value as a patch of a known one; None if that saves next to nothing.

    Marks are never part of one: a reference to a blob must be seen by whoever reads the event.
    """
    if carry.is_marked(known) or carry.is_marked(value):
        return None
    head = _on_boundary(value, _common(known, value), -1)
    tail = _common_tail(known[head:], value[head:])
    start = _on_boundary(value, len(value) - tail, 1)
    tail, between = len(value) - start, value[head:start]
    if head + tail < LEAST or len(between) > MOST:
        return None
    try:
        return which, head, tail, between.decode()
    except UnicodeDecodeError:
        return None


def applied(patch: Patch, known: bytes) -> bytes:
    """The value. Raises one of `UNFIT` for a patch of another one."""
    _, head, tail, between = patch
    if head < 0 or tail < 0 or head + tail > len(known):
        raise ValueError("the patch does not fit")
    value = known[:head] + between.encode() + known[len(known) - tail :]
    if carry.is_marked(value):
        raise ValueError("the patch makes a mark")
    _ = msgspec.json.decode(value)
    return value


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_tail(one: bytes, other: bytes) -> int:
    return _common(one[::-1], other[::-1])


def _on_boundary(value: bytes, at: int, step: int) -> int:
    """The nearest place in that direction where no character of UTF-8 is cut."""
    while 0 < at < len(value) and value[at] & 0xC0 == 0x80:
        at += step
    return at
