"""The states of sessions as a file: a digest after every event, and how each came from the last."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from flightlog import FlightlogError
from flightlog_recorder.replay.delta import Change, applied, delta


class BadRecording(FlightlogError):
    """The file is no recording."""

    def __init__(self, path: Path, line: int) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path.name} is no recording of states: line {line} cannot be read")


class Line(Struct, frozen=True, omit_defaults=True):
    """A state: its digest, and the changes that make it of the one before.

    There are no changes for states that are no JSON.
    """

    session: str
    seq: int
    digest: str
    changes: list[Change] | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_state(written: bytes) -> Any:
    """A written state as builtins, or None if it is no JSON."""
    try:
        return msgspec.json.decode(written)
    except _BROKEN:
        return None


def digest(written: bytes) -> str:
    """The digest of a written state."""
    return hashlib.sha256(written).hexdigest()


class Recorder:
    """Writes a recording. What it records of a session comes in one piece."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._last: Any = None

    def record(self, session: str, seq: int, written: bytes) -> None:
        """Record the state after an event."""
        state = read_state(written)
        before = self._last if seq > 1 else None
        changes = None if state is None else delta(before, state)
        self._last = state
        self._file.write(_encode(Line(session, seq, digest(written), changes)) + b"\n")


class Recording:
    """A recording that is read again, session by session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begins: dict[str, tuple[int, int]] = {}
        for number, at, line in self._lines(0):
            self._begins.setdefault(_read(path, line, number).session, (at, number))

    def __contains__(self, session: str) -> bool:
        return session in self._begins

    def states(self, session: str) -> Iterator[tuple[Line, Any]]:
        """What was recorded after each event, and the state as builtins, None if it was no JSON."""
        at, first = self._begins.get(session, (-1, 0))
        state: Any = None
        for number, _, text in self._lines(at) if at >= 0 else ():
            line = _read(self._path, text, first + number)
            if line.session != session:
                return
            state = None if line.changes is None else applied(state, line.changes)
            yield line, state

    def _lines(self, start: int) -> Iterator[tuple[int, int, bytes]]:
        with self._path.open("rb") as file:
            at = file.seek(start)
            for number, line in enumerate(file, 1):
                yield number, at, line
                at += len(line)


def _read(path: Path, text: bytes, number: int) -> Line:
    try:
        return _decode(text)
    except _BROKEN:
        raise BadRecording(path, number) from None
