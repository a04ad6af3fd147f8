"""A session's blobs: content beside the log, in chunks that are named by what they hold."""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterable

from flightlog import clock
from flightlog.blobs import source as sources
from flightlog.blobs import zstd
from flightlog.blobs.fit import Fit, misfit
from flightlog.blobs.source import Source
from flightlog.bus.answer import Acked, Conflict, Full, Oversized
from flightlog.bus.patience import ANSWER_TIMEOUT, pause
from flightlog.bus.protocol import Bus, Message, Outgoing
from flightlog.errors import BlobCorrupt, BlobMissing, BusUnavailable, LogFull, TooLarge
from flightlog.wire import chunk
from flightlog.wire import subject as names
from flightlog.wire.chunk import Blob, Kind
from flightlog.wire.layout import BLOB_STREAM

DEADLINE = 30.0  # seconds for one chunk to be acknowledged
AT_ONCE = 4  # chunks under way: 2 MiB of content in memory
_FRAME_ROOM = 4096  # bytes of a message beside a chunk that does not compress


class Blobs:
    """The blobs of one session. Safe to share between tasks.

    Every call raises `BusUnavailable` when the bus does not answer in time; trying again is safe.
    """

    def __init__(
        self, bus: Bus, tenant: str, session: str, *, deadline: float | None = DEADLINE
    ) -> None:
        """`deadline` in seconds is that of each chunk that is stored; None waits for ever."""
        self.session = session
        self._bus, self._tenant, self._deadline = bus, tenant, deadline
        self._stored: set[str] = set()
        self._taken: set[Blob] = set()

    @property
    def chunk_size(self) -> int:
        """Bytes of content in a chunk: what a message of this broker can hold."""
        return max(1, min(chunk.SIZE, self._bus.max_payload - _FRAME_ROOM))

    async def put(self, content: bytes, kind: Kind = "bytes", *, head: str = "") -> Blob:
        """Store a content; returns after the broker's acks. Idempotent.

        Raises `TooLarge` above 1 GiB, before anything is sent, and `LogFull`.
        """
        _check_size(len(content))
        blob = chunk.describe(content, kind, head=head, size=self.chunk_size)
        await self.store(blob, content)
        return blob

    async def store(self, blob: Blob, content: bytes) -> None:
        """Store the content that a blob describes."""
        await self._store(_each(chunk.pieces(content, size=self.chunk_size)), blob.kind)

    async def write(self, source: Source) -> Blob:
        """Store bytes, or what a stream or a binary file holds from where it stands to its end.

        Memory is bounded by a few chunks. A file above 1 GiB is refused before anything is sent, a
        stream once it passes that. Raises `InvalidValue` for what gives no bytes.
        """
        if sources.is_file(source):
            _check_size(await asyncio.to_thread(sources.left, source))
        pieces = sources.recut(sources.parts(source), self.chunk_size)
        return await self._store(pieces, "bytes")

    async def _store(self, pieces: AsyncIterator[bytes | memoryview], kind: Kind) -> Blob:
        whole, size, digests = hashlib.sha256(), 0, list[str]()
        under_way = set[asyncio.Task[None]]()
        try:
            async for piece in pieces:
                size += len(piece)
                _check_size(size)
                whole.update(piece)
                digests.append(chunk.digest_of(piece))
                under_way = await _room(under_way)
                under_way.add(asyncio.create_task(self._put(digests[-1], piece)))
            if len(digests) > 1:
                listed = chunk.index(digests)
                _check_index(listed, self.chunk_size)
                under_way.add(asyncio.create_task(self._put(chunk.digest_of(listed), listed)))
            await asyncio.gather(*under_way)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return chunk.of_chunks(digests, whole.hexdigest(), size, kind)

    async def _put(self, digest: str, content: bytes | memoryview) -> None:
        """Store a chunk, unless this process has.

        One that is there already is stored anew: it may be damaged, or what a crash left and the
        recorder is about to collect.
        """
        if digest in self._stored:
            return
        message = Outgoing(zstd.compress(content), {})
        until = None if self._deadline is None else clock.elapsed() + self._deadline
        attempt, expected = 0, 0
        while attempt == 0 or until is None or clock.elapsed() < until:
            answer = await self._bus.append(
                self._subject(digest), [message], expected=expected, timeout=ANSWER_TIMEOUT
            )
            match answer:
                case Acked():
                    self._stored.add(digest)
                    return
                case Full():
                    raise LogFull(self.session, BLOB_STREAM)
                case Oversized(limit=limit):
                    raise TooLarge("a chunk of a blob", len(message.body), limit)
                case Conflict(last=last):
                    expected = await self._last(digest) if last is None else last
                case _:
                    pass  # unclear: the next answer tells
            attempt += 1
            if not isinstance(answer, Conflict) or attempt > 1:
                await asyncio.sleep(pause(attempt))
        raise BusUnavailable(f"stream {BLOB_STREAM}", "no ack in time", session=self.session)

    async def _last(self, digest: str) -> int:
        found = await self._bus.last(BLOB_STREAM, self._subject(digest))
        return found.sequence if found else 0

    async def read(self, blob: Blob) -> bytes:
        """The content, verified. Raises `BlobMissing`, and `BlobCorrupt`, also for another kind."""
        content = b"".join([piece async for piece in self.chunks(blob)])
        self._check(blob, misfit(blob, content))
        return content

    async def prove(self, blob: Blob) -> None:
        """Raise as `read` does, in bounded memory; of JSON above 64 MiB the encoding is checked."""
        fit = Fit(blob)
        async for piece in self.chunks(blob):
            fit.feed(piece)
        self._check(blob, fit.why())

    def _check(self, blob: Blob, why: str | None) -> None:
        if why is not None:
            raise BlobCorrupt(self.session, blob.digest, why)

    async def chunks(self, blob: Blob) -> AsyncIterator[bytes]:
        """Yield the content piece by piece, each verified before it is handed on.

        Whether all of it is the content is known at its end, and raised as `BlobCorrupt`.
        """
        async for _, piece in self.parts(blob):
            yield piece

    async def parts(self, blob: Blob) -> AsyncIterator[tuple[str, bytes]]:
        """Yield each chunk's digest and content, as `chunks` does."""
        whole, size = hashlib.sha256(), 0
        async for digest, piece in self._in_order(await self.listed(blob)):
            whole.update(piece)
            size += len(piece)
            if size > blob.size:
                break
            yield digest, piece
        if size != blob.size or whole.hexdigest() != blob.digest:
            why = f"its chunks give other content than its {blob.size} bytes"
            raise BlobCorrupt(self.session, blob.digest, why)

    async def take(self, blob: Blob, source: "Blobs") -> None:
        """Store another session's blob here too, verified chunk by chunk and as a whole."""
        if (of := chunk.content_of(blob)) in self._taken:
            return
        if blob.index is not None:
            await self._put(blob.index, await source.piece(blob.index))
        async for digest, piece in source.parts(blob):
            await self._put(digest, piece)
        self._taken.add(of)

    async def renew(self, blob: Blob) -> None:
        """Prove the blob and store it anew, unless this process has stored it.

        What no event refers to yet may else be collected before one does.
        """
        await self.prove(blob)
        await self.take(blob, self)

    async def listed(self, blob: Blob) -> list[str]:
        """The digests of the chunks that hold the content, in order."""
        if blob.index is None:
            return [blob.digest]
        if (listed := chunk.listed(await self.piece(blob.index))) is None:
            raise BlobCorrupt(self.session, blob.digest, f"chunk {blob.index} is no index")
        return listed

    async def _in_order(self, digests: Iterable[str]) -> AsyncIterator[tuple[str, bytes]]:
        ahead = deque[tuple[str, asyncio.Task[bytes]]]()
        try:
            for digest in digests:
                if len(ahead) == AT_ONCE:
                    yield await _first(ahead)
                ahead.append((digest, asyncio.create_task(self.piece(digest))))
            while ahead:
                yield await _first(ahead)
        finally:
            tasks = [task for _, task in ahead]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def piece(self, digest: str) -> bytes:
        """A chunk's content; that it is not there, or damaged, is believed of the leader alone."""
        found = await self._bus.after(BLOB_STREAM, self._subject(digest), 0)
        try:
            return self._content(digest, found)
        except (BlobMissing, BlobCorrupt):
            found = await self._bus.last(BLOB_STREAM, self._subject(digest))
            return self._content(digest, found)

    def _content(self, digest: str, message: Message | None) -> bytes:
        if message is None:
            raise BlobMissing(self.session, digest)
        try:
            content = zstd.decompress(message.body, most=chunk.SIZE)
        except ValueError as exc:
            raise BlobCorrupt(self.session, digest, str(exc)) from exc
        if chunk.digest_of(content) != digest:
            raise BlobCorrupt(self.session, digest, "its content has another digest")
        return content

    def _subject(self, digest: str) -> str:
        prefix = self._bus.layout.prefix
        return names.blob_subject(self._tenant, self.session, digest, prefix=prefix)


async def _first(ahead: deque[tuple[str, asyncio.Task[bytes]]]) -> tuple[str, bytes]:
    digest, task = ahead.popleft()
    return digest, await task


def _check_size(size: int) -> None:
    if size > chunk.LIMIT:
        raise TooLarge("the content of a blob", size, chunk.LIMIT)


def _check_index(index: bytes, limit: int) -> None:
    if len(index) > limit:
        raise TooLarge("the index of a blob", len(index), limit)


async def _room(under_way: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those that are under way still, once there is room for one more."""
    if len(under_way) < AT_ONCE:
        return under_way
    done, left = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
    return left


async def _each(pieces: Iterable[memoryview]) -> AsyncIterator[memoryview]:
    for piece in pieces:
        yield piece
