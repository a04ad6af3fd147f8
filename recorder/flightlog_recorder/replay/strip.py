"""Values, changes and events as lines that fit a screen; masking is the one who prints' part."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Raw, Struct

from flightlog.event import Event
from flightlog_recorder.inspect.telling import tell
from flightlog_recorder.replay import delta as deltas
from flightlog_recorder.replay.delta import Change
from flightlog_recorder.replay.picture import opened

WIDTH = 1_000  # characters of somebody's text in one line
MOST = 400  # lines of one value or text
SHORT = 60  # characters of a value that is told beside another one

USUAL = frozenset(
    {("seq",), ("digest",), ("last_ts",), ("counts",)}
)  # these change with every event

SIGNS = {"added": "+", "removed": "-", "changed": "~"}
STYLES = {"+": "green", "-": "red", "~": "yellow"}


class Strip(Struct, frozen=True):
    """One line, and the rich style that it is shown in."""

    text: str
    style: str = ""


def event_line(event: Event) -> str:
    """The event in one line, without its seq, time and type."""
    return tell(event)


def value(found: Any, *, most: int = MOST) -> list[Strip]:
    """A value as indented JSON; long texts are cut, their line breaks are real ones."""
    return _most([Strip(line) for line in _tree(found, 0, "")], most)


def payload(raw: Raw, *, most: int = MOST) -> list[Strip]:
    """What an event carries, marks unresolved."""
    return value(opened(raw), most=most)


def changes(found: Sequence[Change], *, most: int = MOST) -> list[Strip]:
    """A delta of states: a line a change, and below it the lines of what is long."""
    if not found:
        return [Strip("the same state", "dim")]
    told = [change for change in found if not _is_usual(change)]
    lines = _most([line for change in told for line in _change(change)], most)
    usual = [deltas.shown(change.path) for change in found if _is_usual(change)]
    return [*lines, Strip(f"  and {', '.join(usual)}", "dim")] if usual else lines


def _is_usual(change: Change) -> bool:
    return change.path[:1] in USUAL


def payload_changes(found: Sequence[Change], *, most: int = MOST) -> list[Strip]:
    """A delta of anything else, complete."""
    return _most([line for change in found for line in _change(change)], most)


def _change(change: Change) -> Iterator[Strip]:
    sign, path = SIGNS[change.kind], _cut(deltas.shown(change.path))
    style = STYLES[sign]
    if change.is_text and _is_long(change.old, change.new):
        yield Strip(f"~ {path}", style)
        yield from _text(change.old, change.new)
    elif change.kind == "changed":
        old, new = _short(change.old), _short(change.new)
        yield Strip(f"~ {path}: {old} -> {new}", style)
    else:
        found = change.new if change.kind == "added" else change.old
        if _is_small(found):
            yield Strip(f"{sign} {path}: {_short(found)}", style)
            return
        yield Strip(f"{sign} {path}", style)
        for line in _tree(found, 0, ""):
            yield Strip(f"{sign}     {line}", style)


def _is_long(old: str, new: str) -> bool:
    return "\n" in old or "\n" in new or max(len(old), len(new)) > SHORT


def _is_small(found: Any) -> bool:
    return not isinstance(found, dict | list) or not found or len(_json(found)) <= SHORT


def _text(old: str, new: str) -> Iterator[Strip]:
    for at, line in enumerate(deltas.lines(old, new)):
        sign, text = line[:1], line[1:]
        if sign == "@":
            if at:
                yield Strip("    ...", "dim")
        else:
            yield Strip(f"  {sign} {_cut(text)}", STYLES.get(sign, "dim"))


def _short(found: Any) -> str:
    text = _json(found) if not isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}… ({len(text):,} characters)"


def _json(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, default=repr)


def _tree(found: Any, depth: int, name: str) -> Iterator[str]:
    """Lines of a value; `name` stands before the first."""
    room, found = "  " * depth, opened(found)
    match found:
        case dict() | list() if not found:
            yield f"{room}{name}{found}"
        case dict() | list():
            yield from _named(_items(found, depth + 1 if name else depth), room, name)
        case str() if "\n" in found:
            yield f"{room}{name}|"
            yield from (f"{room}  {_cut(line)}" for line in found.splitlines())
        case str():
            yield f"{room}{name}{_cut(found)}"
        case _:
            yield f"{room}{name}{_json(found)}"


def _items(found: dict[Any, Any] | list[Any], depth: int) -> Iterator[str]:
    if isinstance(found, dict):
        for key, item in found.items():
            yield from _tree(item, depth, f"{_cut(str(key))}: ")
    else:
        for item in found:
            yield from _tree(item, depth, "- ")


def _named(lines: Iterator[str], room: str, name: str) -> Iterator[str]:
    """The lines below their name; those of a list item begin on the line of its dash."""
    if name == "- ":
        first = next(lines, "")
        yield f"{room}- {first.lstrip()}"
    elif name:
        yield f"{room}{name}".rstrip()
    yield from lines


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}… ({len(text):,} characters)"


def _most(lines: list[Strip], most: int) -> list[Strip]:
    left = len(lines) - most
    return lines if left <= 0 else [*lines[:most], Strip(f"… {left:,} more lines", "dim")]
