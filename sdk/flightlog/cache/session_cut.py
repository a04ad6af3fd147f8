"""A session's state in pieces: closed segments, closed runs of names, and whatever is large."""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from flightlog import names
from flightlog.cache import cut as cuts
from flightlog.cache import piece
from flightlog.cache.cut import Cut, Cutter, Known, Long
from flightlog.calls import CallState
from flightlog.messages.params import Earlier
from flightlog.messages.segment import Entries, Entry, Packed, Segment
from flightlog.names import Names
from flightlog.session_state import Mark, SessionState
from flightlog.wire.payload import NULL

V = TypeVar("V")


class _Head(Struct, frozen=True):
    """What a head holds: `state` without the fields beside it; large items are places."""

    state: Raw
    result: list[Raw]
    checkpoint: list[Raw]
    writers: list[Raw]
    params: list[Raw]
    earlier: list[Raw]
    calls: list[Raw]
    entries: Long
    values: Long
    said: Long
    effects: Long
    recorded: Long


_encode = msgspec.json.Encoder().encode
_head = msgspec.json.Decoder(_Head)
_state = msgspec.json.Decoder(SessionState)
_entry: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)
_result = msgspec.json.Decoder(tuple[Raw])
_mark = msgspec.json.Decoder(Mark)
_writers = msgspec.json.Decoder(tuple[tuple[int, int], ...])
_call = msgspec.json.Decoder(CallState)
_raw_item = msgspec.json.Decoder(tuple[str, Raw])
_seq_item = msgspec.json.Decoder(tuple[str, int])
_text_item = msgspec.json.Decoder(tuple[str, str])
_call_item = msgspec.json.Decoder(tuple[str, CallState])


def cut(state: SessionState) -> Cut:
    """The state in pieces; equal histories give equal pieces and heads.

    What of it was cut before costs next to nothing.
    """
    cutter = Cutter()
    head = _Head(
        state=Raw(_encode(_rest(state))),
        result=cutter.items([_encode((state.result,))] if state.result != NULL else []),
        checkpoint=cutter.items([_encode(state.checkpoint)] if state.checkpoint else []),
        writers=cutter.items([_encode(state.writers)] if state.writers else []),
        params=cutter.items([_encode(pair) for pair in state.params.items()]),
        earlier=cutter.items([_encode(pair) for pair in _pairs(state.earlier)]),
        calls=cutter.items([_encode(call) for call in state.calls]),
        entries=_cut_entries(cutter, state.entries),
        values=_cut_names(cutter, state.values),
        said=_cut_names(cutter, state.said),
        effects=_cut_names(cutter, state.effects),
        recorded=_cut_names(cutter, state.recorded),
    )
    return cutter.cut(_encode(head))


def join(cut: Cut) -> SessionState:
    """The state that was cut. Raises `LookupError` or `ValueError` for pieces that do not fit."""
    head = _head.decode(cut.state)
    params = [_raw_item.decode(item) for item in cuts.items(head.params, cut)]
    checkpoint = [_mark.decode(item) for item in cuts.items(head.checkpoint, cut)]
    result = [_result.decode(item)[0] for item in cuts.items(head.result, cut)]
    writers = [_writers.decode(item) for item in cuts.items(head.writers, cut)]
    return replace(
        _state.decode(head.state),
        result=result[0] if result else NULL,
        checkpoint=checkpoint[0] if checkpoint else None,
        writers=writers[0] if writers else (),
        params=dict(params),
        earlier=_by_name([_raw_item.decode(item) for item in cuts.items(head.earlier, cut)]),
        calls=tuple([_call.decode(item) for item in cuts.items(head.calls, cut)]),
        entries=_join_entries(head.entries, cut),
        values=_join_names(head.values, cut, _raw_item),
        said=_join_names(head.said, cut, _seq_item),
        effects=_join_names(head.effects, cut, _text_item),
        recorded=_join_names(head.recorded, cut, _call_item),
    )


def _rest(state: SessionState) -> SessionState:
    return replace(
        state,
        result=NULL,
        checkpoint=None,
        writers=(),
        params={},
        earlier=UNSET,
        calls=(),
        entries=Entries(),
        values=Names(),
        said=Names(),
        effects=Names(),
        recorded=Names(),
    )


def _pairs(earlier: Earlier | UnsetType) -> list[tuple[str, Raw]]:
    """The earlier values of fields, each written as a present one is: as the same piece."""
    found = {} if earlier is UNSET else earlier
    return [(name, raw) for name, values in found.items() for raw in values]


def _by_name(pairs: Sequence[tuple[str, Raw]]) -> Earlier | UnsetType:
    found = Earlier()
    for name, raw in pairs:
        found[name] = (*found.get(name, ()), raw)
    return found or UNSET


def _cut_entries(cutter: Cutter, entries: Entries) -> Long:
    closed = entries.closed

    def run(at: int) -> list[bytes]:
        return [_encode(entry) for entry in closed[at].entries]

    return cutter.long(
        [_known(segment) for segment in closed], run, [_encode(entry) for entry in entries.tail]
    )


def _known(segment: Segment) -> Known:
    kept = vars(segment)
    if "piece" not in kept:
        kept["piece"] = cuts.known(piece.listed([_encode(entry) for entry in segment.entries]))
    return cast("Known", kept["piece"])


def _join_entries(found: Long, cut: Cut) -> Entries:
    closed = tuple([_segment(name, cut) for name in cuts.runs(found, cut)])
    if closed:
        _ = closed[-1].entries  # the others are read when they are needed: this tells what fits
    return Entries(closed, tuple([_entry.decode(item) for item in cuts.items(found.tail, cut)]))


def _segment(name: str, cut: Cut) -> Segment:
    if piece.is_leaf(name):
        segment: Segment = Packed(read=partial(cut.pieces.__getitem__, name))
    else:
        segment = Segment(tuple([_entry.decode(item) for item in piece.items(name, cut.pieces)]))
    vars(segment)["piece"] = _found(name, cut)
    return segment


def _found(name: str, cut: Cut) -> Known:
    parts = () if piece.is_leaf(name) else tuple(piece.children(cut.pieces[name]))
    return name, parts


def _cut_names(cutter: Cutter, found: Names[Any]) -> Long:
    runs = [run for part in found.closed for run in _known_runs(part)]
    places = [(part, at) for part in found.closed for at in range(len(part.names) // names.SIZE)]

    def run(place: int) -> list[bytes]:
        part, at = places[place]
        return _run(part, at)

    return cutter.long(runs, run, [_encode(pair) for pair in found.tail.items()])


def _known_runs(part: names.Part[Any]) -> Sequence[Known]:
    kept: list[Known] = names.runs_of(part)
    places = range(len(kept), len(part.names) // names.SIZE)
    kept.extend([cuts.known(piece.listed(_run(part, at))) for at in places])
    return kept


def _run(part: names.Part[Any], at: int) -> list[bytes]:
    start = at * names.SIZE
    return [_encode(pair) for pair in islice(part.names.items(), start, start + names.SIZE)]


def _join_names(found: Long, cut: Cut, item: msgspec.json.Decoder[tuple[str, V]]) -> Names[V]:
    called = cuts.runs(found, cut)
    runs = [dict([item.decode(raw) for raw in piece.items(name, cut.pieces)]) for name in called]
    tail = dict([item.decode(raw) for raw in cuts.items(found.tail, cut)])
    joined = names.of(runs, tail)
    left = [_found(name, cut) for name in called]
    for part in joined.closed:
        count = len(part.names) // names.SIZE
        names.runs_of(part).extend(left[:count])
        left = left[count:]
    return joined
