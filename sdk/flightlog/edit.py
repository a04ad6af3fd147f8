"""How events change a context: requests edit it, results fill it, compact shortens it."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from flightlog import anthropic, view
from flightlog.segment import SIZE, Entries, Entry, Results, Said, Sent, Slot, of

Edit = tuple[int, int]


def edited(entries: Entries, edits: Sequence[Edit], rest: Sequence[Raw], *, seq: int) -> Entries:
    """The entries of a request: `[start, count]` copies lines, `[-1, count]` takes from `rest`.

    Spans that lie outside of what is there are cut to it.
    """
    if not edits:
        return entries
    kept, spans = _prefix(entries, edits)
    places = _places(entries) if any(start >= 0 for start, _ in spans) else []
    unsent, more = list(rest), list[Entry]()
    for start, count in spans:
        if start < 0:
            more += [Sent(seq, message) for message in unsent[: max(0, count)]]
            del unsent[: max(0, count)]
            continue
        copied = places[start : max(start, start + count)]
        notice = Sent(seq, Raw(anthropic.NOTICE))
        more += [entries[place] if place >= 0 else notice for place in copied]
    return kept.add(*more)


def _prefix(entries: Entries, edits: Sequence[Edit]) -> tuple[Entries, Sequence[Edit]]:
    """What a first span from 0 keeps, sharing its segments, and the spans that are left."""
    start, count = edits[0]
    wanted, at = count - view.starts_with_answer(entries), 0
    if start != 0 or wanted <= 0:
        return Entries(), edits
    for segment in entries.closed:
        size = sum(line is not None for line in view.of_segment(segment))
        if size >= wanted:
            break
        wanted, at = wanted - size, at + SIZE
    for entry in entries.after(at):
        if wanted <= 0:
            break
        wanted, at = wanted - (anthropic.line(entry) is not None), at + 1
    return entries.take(at), edits[1:]


def _places(entries: Entries) -> list[int]:
    """For each line the index of its entry; -1 for the notice."""
    found = [at for at, line in enumerate(view.by_entry(entries)) if line is not None]
    return [-1, *found] if view.starts_with_answer(entries) else found


def since(entries: Entries, upto: int) -> int:
    """How many entries at the end are of events after `upto`."""
    count = 0
    for entry in reversed(entries):
        if entry.seq <= upto:
            break
        count += 1
    return count


def filled(entries: Entries, announced_by: int, slot: Slot) -> Entries:
    """With the result of a call in its place; the first result of a call stays."""
    at = len(entries)
    for entry in reversed(entries):
        at -= 1
        if isinstance(entry, Results) and entry.seq == announced_by:
            return entries.put(at, Results(entry.seq, _with(entry.slots, slot)))
    return entries


def _with(slots: tuple[Slot, ...], slot: Slot) -> tuple[Slot, ...]:
    return tuple(
        [
            slot if known.call_id == slot.call_id and known.outcome is None else known
            for known in slots
        ]
    )


def compacted(entries: Entries, keep_from: int, summary: Said) -> Entries:
    """With the summary instead of what stands before the entry of event `keep_from`.

    Results stay with the message that asked for them.
    """
    cut = _cut(entries, keep_from)
    while 0 < cut < len(entries) and _answers_calls(entries[cut]):
        cut -= 1
    return of([summary, *entries.after(cut)])


def _cut(entries: Entries, keep_from: int) -> int:
    """The first entry from `keep_from` on, or what was sent from then on and stands before it."""
    cut = next(
        (at for at, e in enumerate(entries) if e.seq >= keep_from and not isinstance(e, Sent)),
        len(entries),
    )
    while cut and isinstance(sent := entries[cut - 1], Sent) and sent.seq >= keep_from:
        cut -= 1
    return cut


def _answers_calls(entry: Entry) -> bool:
    if not isinstance(entry, Sent):
        return isinstance(entry, Results)
    try:
        message = msgspec.json.decode(entry.message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)
