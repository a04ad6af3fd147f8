"""Values as lines that a page can show: long texts cut, each with the way to all of it. Pure."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from flightlog_recorder.replay import delta as deltas
from flightlog_recorder.replay.delta import Change, Path
from flightlog_recorder.replay.picture import opened
from flightlog_recorder.replay.strip import USUAL

WIDTH = 1_500  # characters of a text that are sent unasked
NAME = 200  # of a key
LINES = 400  # of one value
CHANGED_LINES = 200  # of a text that became another

Kind = Literal["text", "number", "word", "object", "list", "blob"]


class Part(Struct, frozen=True, omit_defaults=True):
    """A line of a value. `path` leads to all of a text of which `text` is the beginning.

    A `blob` is stored beside the log: its size is in bytes, that of a text in characters.
    """

    depth: int
    name: str
    kind: Kind
    text: str
    size: int = 0
    path: Path | None = None


class Parts(Struct, frozen=True):
    """A value's lines; `more`: there are others."""

    lines: list[Part]
    more: bool


class Shown(Struct, frozen=True, omit_defaults=True):
    """A change of a state; `lines` are those of a long text, marked `-` and `+`.

    `at` leads to it in both states; `more`: of the lines, there are others.
    """

    kind: str
    path: str
    at: Path
    usual: bool = False
    old: Parts | None = None
    new: Parts | None = None
    lines: list[str] | None = None
    more: bool = False


class NoSuchPart(LookupError):
    """The path leads nowhere in the value."""


def parts(value: Any, *, most: int = LINES) -> Parts:
    """The value's first lines."""
    found = list(islice(_lines(value, "", 0, ()), most + 1))
    return Parts(found[:most], more=len(found) > most)


def part(value: Any, path: Sequence[str | int]) -> Any:
    """The part of a value that a path leads to. Raises `NoSuchPart`."""
    for step in path:
        value = opened(value)
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            raise NoSuchPart(deltas.shown(tuple(path))) from None
    return value


def text(value: Any) -> str:
    """A value as text: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def changes(found: Sequence[Change], *, most: int = LINES) -> list[Shown]:
    """The changes as they are shown; those that come with every event are marked as usual."""
    return [_shown(change) for change in found[:most]]


def _shown(change: Change) -> Shown:
    path = deltas.shown(change.path)[:WIDTH]
    usual = change.path[:1] in USUAL
    if change.is_text and max(len(change.old), len(change.new)) > 60:
        found = deltas.lines(change.old, change.new)
        lines = [line[:WIDTH] for line in found[:CHANGED_LINES]]
        return Shown(change.kind, path, change.path, usual, lines=lines, more=lines != found)
    old = None if change.kind == "added" else parts(change.old, most=60)
    new = None if change.kind == "removed" else parts(change.new, most=60)
    return Shown(change.kind, path, change.path, usual, old, new)


def _lines(value: Any, name: str, depth: int, path: Path) -> Iterator[Part]:
    match opened(value):
        case {"$flightlog": "blob", "value": {"size": int(size)} as blob}:
            yield Part(depth, name, "blob", str(blob.get("head", ""))[:WIDTH], size, path)
        case dict() as fields:
            yield Part(depth, name, "object", "" if fields else "{}", len(fields))
            for key, item in fields.items():
                yield from _lines(item, str(key)[:NAME], depth + 1, (*path, key))
        case list() as items:
            yield Part(depth, name, "list", "" if items else "[]", len(items))
            for at, item in enumerate(items):
                yield from _lines(item, str(at), depth + 1, (*path, at))
        case str() as words:
            yield _text(words, name, depth, path)
        case bool() | None as word:
            yield Part(depth, name, "word", json.dumps(word))
        case number:
            yield Part(depth, name, "number", json.dumps(number, default=repr))


def _text(words: str, name: str, depth: int, path: Path) -> Part:
    if len(words) <= WIDTH:
        return Part(depth, name, "text", words)
    return Part(depth, name, "text", words[:WIDTH], len(words), path)
