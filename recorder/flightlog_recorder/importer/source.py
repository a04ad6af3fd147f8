"""A file of JSON lines as bytes from strangers: every line comes out, read or kept as it is."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flightlog.wire import carry
from flightlog_recorder.importer import packed
from flightlog_recorder.importer.errors import BadTranscript

BLOCK = 1 << 20  # bytes per read when only hashing
BOM = b"\xef\xbb\xbf"
MAX_DEPTH = carry.MAX_DEPTH - 16  # a record is carried a few levels down in its event's payload


class Line(msgspec.Struct, frozen=True):
    """One line without its newline. `ended` is false for a last line that may be unfinished."""

    number: int
    offset: int
    raw: bytes
    ended: bool


class Record(msgspec.Struct, frozen=True):
    """One JSON object of a line; `index` counts them over the whole file."""

    index: int
    line: int
    offset: int
    fields: dict[str, Any]


class Reading(msgspec.Struct, frozen=True):
    """What a line holds: objects, or the reason why it cannot be read; `notes` are worth a flag."""

    objects: list[dict[str, Any]] = []
    bad: str | None = None
    notes: list[str] = []


class FileId(msgspec.Struct, frozen=True):
    """Which bytes were read: the first `size` of the file, and their hex SHA-256."""

    size: int
    hash: str


def identify(path: Path) -> FileId:
    """Hash a file as it is now, an archive by what is in it.

    Raises `BadTranscript` for what is no readable file, or empty.
    """
    if path.is_dir():
        raise BadTranscript(path, "it is a directory; name the .jsonl files in it")
    digest, size = hashlib.sha256(), 0
    try:
        with packed.opened(path) as file:
            while block := file.read(BLOCK):
                digest.update(block)
                size += len(block)
                _check_size(path, size)
    except FileNotFoundError as exc:
        raise BadTranscript(path, "there is no such file") from exc
    except OSError as exc:
        raise BadTranscript(path, f"it cannot be read ({exc.strerror})") from exc
    except packed.FAULTS as exc:
        raise BadTranscript(path, "its zstd archive is damaged or cut off") from exc
    if not size:
        raise BadTranscript(path, "it is empty")
    return FileId(size, digest.hexdigest())


def _check_size(path: Path, size: int) -> None:
    if path.suffix == packed.SUFFIX and size > packed.MOST:
        raise BadTranscript(path, f"it unpacks to more than {packed.MOST:,} bytes; try: zstd -d")


def read_lines(path: Path, *, upto: int) -> Iterator[Line]:
    """Yield the lines of the first `upto` bytes, one in memory at a time."""
    offset = 0
    with packed.opened(path) as file:
        for number, chunk in enumerate(file, 1):
            raw = chunk[: upto - offset]
            if not raw:
                return
            yield Line(number, offset, raw.removesuffix(b"\n"), raw.endswith(b"\n"))
            offset += len(raw)


def parse(line: Line) -> Reading:
    """Read a line's JSON objects. Total: what cannot be read comes back with the reason."""
    try:
        text = line.raw.removeprefix(BOM).decode() if line.offset == 0 else line.raw.decode()
    except UnicodeDecodeError:
        return Reading(bad="it is not UTF-8")
    try:
        values = _values(text)
        objects = [value for value in values if isinstance(value, dict)]
    except _TwiceNamed:
        return Reading(bad="an object names a field twice")
    except RecursionError:
        return Reading(bad="it is nested too deeply")
    except ValueError:
        return Reading(bad="it is not JSON" if line.ended else "it is cut off in the middle")
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(objects) > MAX_DEPTH:
        return Reading(bad="it is nested too deeply")
    if len(objects) != len(values):
        return Reading(bad="it is JSON, but no object")
    return Reading(objects, notes=_notes(text, objects))


def grew_from(path: Path, *, size: int, hash: str) -> bool:
    """Whether the file begins with exactly the bytes of an earlier import."""
    digest, left = hashlib.sha256(), size
    with packed.opened(path) as file:
        while left and (block := file.read(min(left, BLOCK))):
            digest.update(block)
            left -= len(block)
    return left == 0 and digest.hexdigest() == hash


def plain(value: object) -> str | None:
    """The value if it is text that JSON carries as it is, without half a surrogate pair."""
    return value if isinstance(value, str) and _is_unicode(value) else None


def _values(text: str) -> list[Any]:
    values: list[Any] = []
    at, end = _skip(text, 0), len(text)
    while at < end:
        value, at = _decoder.raw_decode(text, at)
        values.append(value)
        at = _skip(text, at)
    return values


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [child for node in level for child in _children(node)]
    return depth


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _notes(text: str, objects: list[dict[str, Any]]) -> list[str]:
    notes = ["it holds more than one object"] if len(objects) > 1 else []
    if "\\ud" in text.lower() and not _is_unicode(objects):
        notes.append("it holds half a surrogate pair; the text is carried marked")
    return notes


def _is_unicode(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


class _TwiceNamed(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _TwiceNamed
    return fields


_decoder = json.JSONDecoder(object_pairs_hook=_object)
