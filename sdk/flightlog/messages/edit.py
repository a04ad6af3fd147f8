"""How events change a context: requests edit it, results fill it, compact shortens it."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Raw

from flightlog.messages import patch, providers, view
from flightlog.messages.patch import Patch
from flightlog.messages.provider import Provider
from flightlog.messages.segment import Entries, Entry, Results, Sent, Slot, of
from flightlog.messages.view import Stretch

Edit = tuple[int, int]

REST, PATCHED = -1, -2  # the starts of what is no copy


def edited(
    entries: Entries,
    edits: Sequence[Edit],
    rest: Sequence[Raw],
    patches: Sequence[Patch] = (),
    *,
    seq: int,
    provider: Provider,
) -> Entries:
    """The entries of a request: `[start, count]` copies lines, `[-1, count]` takes from `rest`.

    `[-2, count]` takes what `patches` make of lines. Spans that lie outside of what is there are
    cut to it. Of an entry that is several lines all must be copied; the lines of one that is not
    are kept as they were sent.
    """
    if not edits:
        return entries
    found = view.stretches(entries, provider)
    made = _patched(entries, patches, found, provider)
    kept, spans = _prefix(entries, edits, found, provider)
    placed = view.placed(entries, provider) if any(start >= 0 for start, _ in spans) else []
    sizes = [len(each.lines) for stretch in found for each in stretch.written] if placed else []
    unsent, more = {REST: list(rest), PATCHED: made}, list[Entry]()
    for start, count in spans:
        if start < 0:
            due = unsent.get(start, [])
            more += [Sent(seq, message, provider.NAME) for message in due[: max(0, count)]]
            del due[: max(0, count)]
            continue
        for at, lines in _runs(placed[start : max(start, start + count)]):
            is_entry = at >= 0 and len(lines) == sizes[at]
            more += [entries[at]] if is_entry else _as_sent(lines, seq, provider)
    return kept.add(*_joined(more, seq, provider))


def _patched(
    entries: Entries, patches: Sequence[Patch], found: Sequence[Stretch], provider: Provider
) -> list[Raw]:
    """What patches make of lines; null for one that does not fit, which no provider says."""
    made = list[Raw]()
    for each in patches:
        try:
            line = patch.applied(each, view.line(entries, found, each[0], provider))
        except patch.UNFIT:
            line = b"null"
        made.append(Raw(line))
    return made


def _runs(placed: Sequence[view.Placed]) -> Iterable[tuple[int, list[bytes]]]:
    for at, run in groupby(placed, key=lambda each: each[0]):
        yield at, [line for _, line in run]


def _as_sent(lines: Sequence[bytes], seq: int, provider: Provider) -> list[Entry]:
    return [Sent(seq, Raw(line), provider.NAME) for line in lines]


def _joined(entries: Sequence[Entry], seq: int, provider: Provider) -> list[Entry]:
    """The entries, results in a row as one: together they answer one message."""
    joined = list[Entry]()
    for gives, run in groupby(entries, key=lambda entry: _gives(entry, provider)):
        found = list(run)
        joined += [_as_one(found, seq, provider)] if gives and len(found) > 1 else found
    return joined


def _gives(entry: Entry, provider: Provider) -> bool:
    """Whether it is results, and nothing that asks for some."""
    return bool(view.written(entry, provider).gives) if isinstance(entry, Results | Sent) else False


def _as_one(run: Sequence[Entry], seq: int, provider: Provider) -> Entry:
    lines = [line for entry in run for line in view.written(entry, provider).lines]
    return Sent(seq, Raw(b"[" + b",".join(lines) + b"]"), provider.NAME)


def _prefix(
    entries: Entries, edits: Sequence[Edit], found: Sequence[Stretch], provider: Provider
) -> tuple[Entries, Sequence[Edit]]:
    """What a first span from 0 keeps, sharing its segments, and the spans that are left."""
    start, count = edits[0]
    wanted, at = count - len(view.opening(found, provider)), 0
    if start != 0 or wanted <= 0 or not view.is_whole(entries, found):
        return Entries(), edits
    for stretch in found:
        if len(stretch.lines) >= wanted:
            more, wanted = _fitting(stretch, wanted)
            at += more
            break
        wanted, at = wanted - len(stretch.lines), at + len(stretch.written)
    left = [(count - wanted, wanted)] if wanted > 0 else []
    return entries.take(at), [*left, *edits[1:]]


def _fitting(stretch: Stretch, wanted: int) -> tuple[int, int]:
    """How many entries a number of lines covers, and the lines left of one that it cuts."""
    for at, each in enumerate(stretch.written):
        if wanted < len(each.lines) or wanted <= 0:
            return at, wanted
        wanted -= len(each.lines)
    return len(stretch.written), wanted


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
        if entry.seq == announced_by and isinstance(entry, Results):
            return entries.put(at, Results(entry.seq, _with(entry.slots, slot), entry.provider))
    return entries


def _with(slots: tuple[Slot, ...], slot: Slot) -> tuple[Slot, ...]:
    return tuple(
        [
            slot if known.call_id == slot.call_id and known.outcome is None else known
            for known in slots
        ]
    )


def compacted(entries: Entries, keep_from: int, instead: Sequence[Entry]) -> Entries:
    """With other entries instead of what stands before the entry of event `keep_from`.

    Results stay with the message that asked for them.
    """
    cut = _cut(entries, keep_from)
    while 0 < cut < len(entries) and _answers_calls(entries[cut]):
        cut -= 1
    return of([*instead, *entries.after(cut)])


def sent(messages: Sequence[Raw], *, seq: int, provider: Provider) -> Entries:
    """Messages that no other event holds, as entries."""
    return edited(Entries(), [(-1, len(messages))], messages, seq=seq, provider=provider)


def with_ahead(entries: Entries, ahead: Sequence[Sent], *, seq: int, provider: Provider) -> Entries:
    """With the messages that wait for a request of this provider, as its own."""
    messages = [each.message for each in ahead if each.provider == provider.NAME]
    return entries.add(*sent(messages, seq=seq, provider=provider))


def rewound(entries: Entries, to: int) -> Entries:
    """Without the entry of event `to` and what stands behind it."""
    named = (at for at, entry in enumerate(entries) if entry.seq == to)
    return entries.take(next(named, _cut(entries, to)))


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
    if isinstance(entry, Results):
        return True
    return isinstance(entry, Sent) and _gives(entry, providers.get(entry.provider))
