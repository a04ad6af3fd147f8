"""Deletes the chunks of a session that are garbage."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from flightlog.blobs.blob import Blobs
from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import BlobCorrupt, BlobMissing
from flightlog.event import Event
from flightlog.names import Names
from flightlog.reading import reader
from flightlog.reading.reader import Folded
from flightlog.wire import subject as names
from flightlog.wire.layout import BLOB_STREAM
from flightlog_recorder.blobs import garbage
from flightlog_recorder.blobs.garbage import CLOSES, LEAVES, ORPHANED, SKEW, Chunk
from flightlog_recorder.stored import stored_at
from flightlog_recorder.verify.replay import Referred, referred


class _Uses(Struct, frozen=True):
    """What a log refers to, where its writer last changed, and the type of its last event."""

    seq: int = 0
    blobs: Names[Referred] = Names()
    left: int = 0
    last: str = ""


class _Use:
    name, version = "uses", 1

    def initial(self) -> _Uses:
        return _Uses()

    def apply(self, state: _Uses, event: Event) -> _Uses:
        left = event.sequence if event.type in LEAVES else state.left
        blobs = referred(state.blobs, event)
        return replace(state, seq=event.seq, blobs=blobs, left=left, last=event.type)

    def encode(self, state: _Uses) -> bytes:
        return str(state.seq).encode()

    def decode(self, raw: bytes) -> _Uses:
        raise ValueError(f"{len(raw)} bytes: it is never stored")


async def collect(
    bus: NatsBus,
    tenant: str,
    session: str,
    *,
    skew: timedelta = SKEW,
    orphaned: timedelta = ORPHANED,
) -> int:
    """Delete the session's garbage; returns how many chunks went. Idempotent.

    Nothing is deleted while an index cannot be read, as it hides what it lists, nor of a base that
    is being written or of a purged session, whose purge takes all. Raises `LogCorrupt` and
    `BusUnavailable`.
    """
    stored = [digest async for digest in _stored(bus, tenant, session)]
    if not stored:
        return 0
    folded = await reader.fold(bus, tenant, session, _Use())
    match folded.presence:
        case "absent":
            chunks = [chunk async for chunk in _chunks(bus, tenant, session, stored)]
            found = garbage.without_log(chunks, datetime.now(UTC), orphaned=orphaned)
        case "present" if (used := await _used(bus, tenant, session, folded.state)) is not None:
            unused = [digest for digest in stored if digest not in used]
            chunks = [chunk async for chunk in _chunks(bus, tenant, session, unused)]
            stream = bus.layout.stream_of(session)
            left = await stored_at(bus, stream, {"seq": folded.state.left})
            if await _unwritten(bus, tenant, session, folded):
                found = chunks
            else:
                found = garbage.of_session(chunks, left[1], skew=skew) if left else []
        case _:
            found = []
    for chunk in found:
        subject = _subject(bus, tenant, session, chunk.digest)
        await bus.purge(BLOB_STREAM, subject, below=chunk.sequence + 1)
    return len(found)


async def _stored(bus: NatsBus, tenant: str, session: str) -> AsyncIterator[str]:
    async for page in bus.subjects(BLOB_STREAM, filter=_subject(bus, tenant, session, "*")):
        for subject in page:
            yield subject.rsplit(".", 1)[-1]


async def _unwritten(bus: NatsBus, tenant: str, session: str, folded: Folded[_Uses]) -> bool:
    """Whether nobody writes it yet: a chunk seen before this look is then no new writer's."""
    if folded.state.last not in CLOSES:
        return False
    live = names.log_subject(tenant, session, "live", prefix=bus.layout.prefix)
    newest = await stored_at(bus, bus.layout.stream_of(session), {"last_by_subj": live})
    return newest is not None and newest[0] == folded.last_live


async def _used(bus: NatsBus, tenant: str, session: str, uses: _Uses) -> set[str] | None:
    """The chunks that events refer to, directly or by an index; None if one cannot be read."""
    blobs, used = Blobs(bus, tenant, session), set[str]()
    for each in [each for _, each in uses.blobs.items()]:
        try:
            used.update(await blobs.listed(each.blob))
        except (BlobMissing, BlobCorrupt):
            return None
        used.update([each.blob.index] if each.blob.index else [])
    return used


async def _chunks(
    bus: NatsBus, tenant: str, session: str, digests: list[str]
) -> AsyncIterator[Chunk]:
    for digest in digests:
        query = {"last_by_subj": _subject(bus, tenant, session, digest)}
        if (found := await stored_at(bus, BLOB_STREAM, query)) is not None:
            yield Chunk(digest, *found)


def _subject(bus: NatsBus, tenant: str, session: str, digest: str) -> str:
    return names.blob_subject(tenant, session, digest, prefix=bus.layout.prefix)
