"""A session in an exported file, one stored body a line; no server is asked."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Raw, Struct

from flightlog import BlobMissing, FlightlogError, InvalidEvent
from flightlog import event as events
from flightlog.blobs.blob import Blobs
from flightlog.blobs.spill import SPILLS
from flightlog.bus.protocol import Message
from flightlog.event import Event
from flightlog.reading.chain import Branch, Chain, Head, Stray
from flightlog.session_state import SessionState
from flightlog.writing.holding import Holding
from flightlog_recorder.replay.source import Damage, Opened, Stretch

LINES, BYTES = 1_000, 1 << 20  # read at once, as a page of a log
LONGEST = 1 << 26  # bytes of one line: a body is at most 1 MiB, what others made may be larger


class NoSession(FlightlogError):
    """The file holds no event of a session."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path.name} holds no session; flightlog export writes such files")


class FileSource:
    """An exported file. A place's `sequence` is the offset behind its line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session = ""
        self._holding = Holding(_FileBlobs(path, ""), SPILLS)

    async def open(self, *, at: int | None = None) -> Opened:  # noqa: ARG002 - it holds no states
        """See whose file it is and where it ends; its chain is checked when it is read."""
        with self._path.open("rb") as file:
            first, last = _first(file), _last(file)
        if first is None or last is None:
            raise NoSession(self._path)
        self._session = first.session_id
        self._holding = Holding(_FileBlobs(self._path, self._session), SPILLS)
        return Opened(self._session, last.seq)

    async def near(self, seq: int) -> None:
        """None: what was passed is kept by whoever passed it."""

    async def stretches(self, head: Head) -> AsyncGenerator[Stretch]:
        """The events behind a place. Raises `Damage` where a line does not follow the last."""
        chain = Chain(self._session, head)
        with self._path.open("rb") as file:
            file.seek(head.sequence)
            while (found := self._batch(file, chain)) is not None:
                if found:
                    yield Stretch(found, chain.head)
                await asyncio.sleep(0)  # a key must be able to stop a long search
        if chain.strays:
            seq = chain.head.seq
            what = f"the next line is not event {seq + 1} of session {self._session}"
            raise Damage(seq, f"{self._path.name} is damaged after seq {seq}: {what}")

    async def filled(self, state: SessionState) -> SessionState:
        """The state with what of it lies in blobs; those that the file lacks stay named in it."""
        return await self._holding.fetch(state)

    async def payload(self, event: Event) -> Raw:
        """The event's payload, blobs in place. Raises `BlobMissing` and `BlobCorrupt`."""
        return await self._holding.whole(event.raw)

    def _batch(self, file: IO[bytes], chain: Chain) -> list[Event] | None:
        """The next events, which may be none where blobs stand between them; None at the end."""
        found: list[Event] = []
        start = file.tell()
        while not chain.strays and len(found) < LINES and file.tell() - start < BYTES:
            line = file.readline(LONGEST)
            if not line:
                return found or None
            if event := _offer(chain, line.rstrip(b"\r\n"), file.tell()):
                found.append(event)
        return found if found or not chain.strays else None


class _FileBlobs(Blobs):
    """The blobs that stand among the events, wherever they do."""

    def __init__(self, path: Path, session: str) -> None:  # no super(): there is no bus
        self.session, self._path = session, path
        self._places: dict[str, int] | None = None

    async def piece(self, digest: str) -> bytes:
        """A chunk's content, verified."""
        if self._places is None:
            self._places = await asyncio.to_thread(self._found)
        if (at := self._places.get(digest)) is None:
            raise BlobMissing(self.session, digest)
        with self._path.open("rb") as file:
            file.seek(at)
            found = _chunk(file.readline(LONGEST))
        return self._content(digest, Message("", at, found.frame) if found else None)

    def _found(self) -> dict[str, int]:
        places, at = dict[str, int](), 0
        with self._path.open("rb") as file:
            while line := file.readline(LONGEST):
                if (found := _chunk(line)) is not None:
                    places[found.digest] = at
                at += len(line)
        return places


class _Chunk(Struct, tag_field="type", tag="blob"):
    digest: str
    frame: bytes


_chunks = msgspec.json.Decoder(_Chunk)


def _chunk(line: bytes) -> _Chunk | None:
    try:
        return _chunks.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class _Line(Struct):
    seq: Any = None


_line = msgspec.json.Decoder(_Line)


def _offer(chain: Chain, body: bytes, at: int) -> Event | None:
    if not body or _is_aside(body):
        return None
    try:
        offered = chain.offer(Message("", at, body), "live")
    except Branch as branch:  # an export holds what counts alone
        chain.strays.append(Stray(at, branch.pin.seq, "", "branch"))
        return None
    return offered if isinstance(offered, Event) else None


def _is_aside(body: bytes) -> bool:
    """Whether the line is an object without seq: no event, but what is kept beside them."""
    try:
        return _line.decode(body).seq is None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _first(file: IO[bytes]) -> Event | None:
    for line in iter(lambda: file.readline(LONGEST), b""):
        if (event := _event(line)) is not None:
            return event
    return None


def _last(file: IO[bytes]) -> Event | None:
    """The last event, found from the end; a window and a line are held at a time."""
    end, rest = file.seek(0, 2), b""
    while end > 0:
        start = max(0, end - BYTES)
        file.seek(start)
        block = file.read(end - start) + rest
        rest, newline, whole = block.partition(b"\n") if start else (b"", b"\n", block)
        lines = reversed(whole.split(b"\n")) if newline else ()
        if (found := next((event for line in lines if (event := _event(line))), None)) is not None:
            return found
        end = start
    return None


def _event(line: bytes) -> Event | None:
    try:
        found = events.decode(line.rstrip(b"\r\n"))
    except InvalidEvent:
        return None
    return found if isinstance(found, Event) else None
