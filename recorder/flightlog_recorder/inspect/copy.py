"""A session as a file: its stored bodies, one a line, byte for byte, then its blobs' chunks."""

from collections.abc import AsyncIterator
from typing import IO, Literal

import msgspec
from msgspec import Struct

from flightlog.blobs import held, zstd
from flightlog.blobs.blob import Blobs
from flightlog.bus.protocol import Bus
from flightlog.errors import (
    BlobCorrupt,
    BlobMissing,
    FlightlogError,
    LogCorrupt,
    NoSuchSession,
    SessionPurged,
)
from flightlog.event import Event
from flightlog.wire import carry, chunk
from flightlog.wire.chunk import Blob
from flightlog_recorder.inspect.follow import Following, Rewound


class ChunkLine(Struct, frozen=True, kw_only=True):
    """A chunk of a blob as a line of a file: it has no seq, so it is no event."""

    v: int = 1
    session_id: str
    type: Literal["blob"] = "blob"
    digest: str
    frame: bytes


class NotOneLine(FlightlogError):
    """An event whose stored body holds a line break: as it is, it is not one line of a file."""

    def __init__(self, session: str, seq: int) -> None:
        self.session, self.seq = session, seq
        super().__init__(
            f"event {seq} of session {session} was stored with a line break in it, so its bytes are"
            f" not one line; flightlog export --until {seq - 1} writes what is before it"
        )


class Copied(Struct, frozen=True):
    """How many events a file holds, and why it lacks some of what they refer to."""

    events: int
    lacks: list[str] = []


async def copy(
    bus: Bus, tenant: str, session: str, file: IO[bytes], *, until: int | None = None
) -> Copied:
    """Write the events up to seq `until` into a file that can be rewound, and their blobs.

    Memory is one page and a chunk. Raises `NotOneLine`, `LogCorrupt`, `NoSuchSession` and
    `SessionPurged`; what the file then holds is not to be kept.
    """
    following = Following(bus, tenant, session)
    places = _Places(file)
    try:
        await _write(following, places, until)
    except LogCorrupt as exc:
        if until is None or exc.seq < until:
            raise
    if following.presence == "purged":
        raise SessionPurged(session)
    if following.presence != "present":
        raise NoSuchSession(session)
    return Copied(places.count, await _write_blobs(Blobs(bus, tenant, session), places))


async def _write_blobs(blobs: Blobs, places: "_Places") -> list[str]:
    """Each chunk once, in a line of its own."""
    written, lacks = set[str](), list[str]()
    for blob in places.referred():
        try:
            async for digest, content in _parts(blobs, blob):
                if digest not in written:
                    places.put(blobs.session, digest, content)
                    written.add(digest)
        except (BlobMissing, BlobCorrupt) as exc:
            lacks.append(str(exc))
    return lacks


async def _parts(blobs: Blobs, blob: Blob) -> AsyncIterator[tuple[str, bytes]]:
    """Every chunk of it, the index first. Raises at its end if they are not the blob."""
    if blob.index is not None:
        yield blob.index, await blobs.piece(blob.index)
    async for part in blobs.parts(blob):
        yield part


async def _write(following: Following, places: "_Places", until: int | None) -> None:
    async for found in following.more():
        if isinstance(found, Rewound):
            places.back_to(found.to)
            continue
        for event in found:
            if until is None or event.seq <= until:
                _check(event)
                places.write(event)


def _check(event: Event) -> None:
    if b"\n" in event.body or b"\r" in event.body:
        raise NotOneLine(event.session_id, event.seq)


class _Places:
    """The lines of a file; a fenced writer's are cut off again, once its loser is known."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._blobs: list[tuple[int, Blob]] = []
        self.count = 0

    def write(self, event: Event) -> None:
        self._file.write(event.body + b"\n")
        self.count += 1
        if carry.is_marked(event.body):
            self._blobs += [(event.seq, blob) for blob in held.references(event.raw)]

    def referred(self) -> list[Blob]:
        """What the events refer to, each once as they say it is."""
        return list({chunk.content_of(blob): blob for _, blob in self._blobs}.values())

    def put(self, session: str, digest: str, content: bytes) -> None:
        """A chunk's line, as docs/wire.md describes it."""
        line = ChunkLine(session_id=session, digest=digest, frame=zstd.compress(content))
        self._file.write(msgspec.json.encode(line) + b"\n")

    def back_to(self, seq: int) -> None:
        """Keep the first `seq` lines alone; rare, so it reads them again."""
        self._file.seek(0)
        for _ in range(min(seq, self.count)):
            self._file.readline()
        self._file.truncate(self._file.tell())
        self._file.seek(0, 2)
        self.count = min(seq, self.count)
        self._blobs = [(at, blob) for at, blob in self._blobs if at <= seq]
