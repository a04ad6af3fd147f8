"""Blobs on a real broker: what is stored comes back, and what is damaged is named."""

import functools
import io
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flightlog import (
    Blob,
    BlobCorrupt,
    BlobMissing,
    CallModel,
    Decide,
    FlightlogError,
    InvalidValue,
    Log,
    LogFull,
    NeedsDecision,
    RunTools,
    Suspended,
    TooLarge,
    blocking,
    connect,
)
from flightlog.blobs import held
from flightlog.blobs.blob import Blobs
from flightlog.blobs.zstd import compress, library
from flightlog.bus.answer import Acked
from flightlog.bus.nats_bus import NatsBus, connect_bus
from flightlog.bus.protocol import Outgoing
from flightlog.running import inbox
from flightlog.wire import carry, chunk, stand_in
from flightlog.wire import subject as names
from flightlog.wire.layout import BLOB_STREAM

TENANT, SESSION = "acme", "sess_1"
WORDS = 'he said "hi" to me\n' * 200_000  # 3.8 MB: 8 chunks


async def replaced(bus: Any, digest: str, body: bytes, *, session: str = SESSION) -> None:
    """Store other bytes as the chunk of that digest, as nobody should."""
    subject = names.blob_subject(TENANT, session, digest)
    last = await bus.last(BLOB_STREAM, subject)
    expected = last.sequence if last else 0
    answer = await bus.append(subject, [Outgoing(body, {})], expected=expected, timeout=5)
    assert isinstance(answer, Acked)


async def removed(bus: NatsBus, digest: str) -> None:
    assert await bus.purge(BLOB_STREAM, names.blob_subject(TENANT, SESSION, digest), below=2**50)


async def chunks_of(bus: NatsBus) -> int:
    return sum([len(page) async for page in bus.subjects(BLOB_STREAM)])


@pytest.mark.parametrize("size", [0, 1, chunk.SIZE - 1, chunk.SIZE, chunk.SIZE + 1, 3_000_001])
async def test_what_is_put_or_written_comes_back_equal(nats_url: str, size: int) -> None:
    content = random.Random(size).randbytes(size)
    async with await connect_bus(nats_url) as bus:
        blobs = Blobs(bus, TENANT, SESSION)
        put, written = await blobs.put(content), await blobs.write(io.BytesIO(content))
        assert put == written == await blobs.write(stream(content, 700_000))
        assert await blobs.read(put) == content
        assert (put.size, put.digest) == (size, chunk.digest_of(content))
        assert (put.index is None) == (size <= chunk.SIZE)


async def stream(content: bytes, step: int) -> AsyncIterator[bytes]:
    for at in range(0, len(content), step):
        yield content[at : at + step]


async def test_equal_content_is_stored_once(nats_url: str) -> None:
    async with await connect_bus(nats_url) as bus:
        blob = await Blobs(bus, TENANT, SESSION).put(b"x" * 3_000_000)
        before = await chunks_of(bus)
        assert await Blobs(bus, TENANT, SESSION).put(b"x" * 3_000_000) == blob
        assert before == await chunks_of(bus) == 3  # one full chunk, the last, the index


async def test_a_damaged_chunk_is_stored_anew_by_who_stores_the_content_again(
    nats_url: str,
) -> None:
    async with await connect_bus(nats_url) as bus:
        blob = await Blobs(bus, TENANT, SESSION).put(b"content")
        await replaced(bus, blob.digest, b"garbage")
        assert await Blobs(bus, TENANT, SESSION).put(b"content") == blob
        assert await Blobs(bus, TENANT, SESSION).read(blob) == b"content"


class Sized(bytes):
    """Two gigabytes, as far as anybody asks."""

    def __len__(self) -> int:
        return 2 << 30


class Sparse(io.BytesIO):
    """A file of two gigabytes that nobody reads."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return 2 << 30 if whence == io.SEEK_END else super().seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        raise AssertionError(f"{size} bytes were read")


async def endless() -> AsyncIterator[bytes]:
    part = bytes(64 << 20)
    while True:
        yield part


async def test_two_gibibytes_are_refused_before_anything_is_sent(nats_url: str) -> None:
    async with await connect_bus(nats_url) as bus:
        blobs = Blobs(bus, TENANT, SESSION)
        for attempt in (blobs.put(Sized()), blobs.write(Sparse())):
            with pytest.raises(TooLarge, match="2147483648 bytes, the limit is 1073741824"):
                await attempt
        assert await chunks_of(bus) == 0


async def test_a_full_blob_stream_is_named_and_nothing_refers_to_what_it_lacks(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await resize(log.bus, 100_000)
            with pytest.raises(LogFull, match=BLOB_STREAM):
                await s.user_message(random.Random(1).randbytes(400_000).hex())
            await s.user_message("still here")
            await resize(log.bus, -1)
            await s.user_message(WORDS)
        state = await log.state(s.id)
        assert [m["content"] for m in state.messages()] == ["still here", WORDS]


async def resize(bus: Any, max_bytes: int) -> None:
    info = await bus.api(f"STREAM.INFO.{BLOB_STREAM}")
    config = info["config"] | {"max_bytes": max_bytes}
    assert "error" not in await bus.api(f"STREAM.UPDATE.{BLOB_STREAM}", json.dumps(config).encode())


async def spilled(log: Log) -> tuple[str, Blob]:
    async with log.session() as s:
        await s.user_message("before")
        await s.user_message(WORDS)
        await s.user_message("after")
    async for event in log.read(s.id):
        if event.type == "user_message" and isinstance(event.payload["content"], Blob):
            return s.id, event.payload["content"]
    raise AssertionError("nothing was spilled")


def bomb(size: int) -> bytes:
    return library.compress(bytes(size))


def undeclared(size: int, window_log: int) -> bytes:
    compressor = library.ZstdCompressor(
        options={library.CompressionParameter.window_log: window_log}
    )
    return compressor.compress(bytes(size)) + compressor.flush()


DAMAGE: dict[str, tuple[bytes, str]] = {
    "another content": (compress(b"another"), "another digest"),
    "no frame": (b"garbage", "no zstd frame"),
    "a cut frame": (bomb(1000)[:-2], "zstd frame"),
    "two frames": (bomb(10) + bomb(10), "one whole zstd frame"),
    "a bomb": (bomb(64 << 20), "declares more than"),
    "a bomb that does not say so": (undeclared(64 << 20, 17), "holds more than"),
    "a frame that wants a large window": (undeclared(64 << 20, 21), "no zstd frame"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("where", ["chunk", "index"])
async def test_a_damaged_chunk_is_named_and_the_rest_of_the_session_can_be_read(
    nats_url: str, damage: str, where: str
) -> None:
    body, why = DAMAGE[damage]
    async with connect(nats=nats_url, tenant=TENANT) as log:
        session, blob = await spilled(log)
        assert blob.index is not None
        listed = await Blobs(log.bus, TENANT, session).listed(blob)
        await replaced(
            log.bus, listed[2] if where == "chunk" else blob.index, body, session=session
        )
        state = await named(log, session, BlobCorrupt, why)
        assert (state.seq, state.status) == (5, "suspended")
        async with log.session(id=session) as again:
            await again.user_message("it can be written, too")
            await again.compact("what was said", keep_from=again.state.seq)
            assert len(again.state.messages()) == 2


async def named(log: Log, session: str, kind: type[FlightlogError], why: str) -> Any:
    """Every way to the content names the damage; all else of the session can be read."""
    seen = [event async for event in log.read(session)]
    state = await log.state(session)
    with pytest.raises(kind, match=session) as refused:
        state.messages()
    assert why in str(refused.value)
    for event in seen:
        if event.type == "user_message" and isinstance(event.payload["content"], Blob):
            with pytest.raises(kind, match=session):
                await log.payload(event)
            with pytest.raises(kind):
                _ = [piece async for piece in log.blob(session, event.payload["content"])]
        else:
            await log.payload(event)
    assert [event.seq for event in seen] == [1, 2, 3, 4, 5]
    return state


async def test_a_missing_chunk_is_named(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        session, blob = await spilled(log)
        subject = names.blob_subject(TENANT, session, str(blob.index))
        await log.bus.purge(BLOB_STREAM, subject, below=2**50)
        await named(log, session, BlobMissing, "has no blob")


async def test_chunks_in_another_order_or_number_are_not_the_content(nats_url: str) -> None:
    content = random.Random(7).randbytes(3 * chunk.SIZE)
    async with await connect_bus(nats_url) as bus:
        blobs = Blobs(bus, TENANT, SESSION)
        blob = await blobs.put(content)
        listed = await blobs.listed(blob)
        for other in (listed[::-1], listed[:-1], [*listed, listed[0]], listed[:1] * 2**14):
            index = await blobs.put(chunk.index(other))
            forged = Blob(blob.digest, blob.size, "bytes", index.digest)
            with pytest.raises(BlobCorrupt, match="other content"):
                await blobs.read(forged)
        with pytest.raises(BlobCorrupt, match="other content"):
            await blobs.read(Blob("0" * 64, blob.size, "bytes", blob.index))
        odd = await blobs.put(b"33 bytes are no words of 32 each!")
        with pytest.raises(BlobCorrupt, match="no index"):
            await blobs.read(Blob(blob.digest, blob.size, "bytes", odd.digest))


LIES: dict[str, tuple[Any, type[FlightlogError]]] = {
    "another session's": (lambda _, other: other, BlobMissing),
    "nobody's": (lambda *_: Blob("0" * 64, 5), BlobMissing),
    "nobody's text": (lambda *_: Blob("0" * 64, 5, "text"), BlobMissing),
    "another size": (lambda own, _: replace(own, size=own.size - 1), BlobCorrupt),
    "another kind": (lambda own, _: replace(own, kind="json"), BlobCorrupt),
    "another index": (lambda own, _: replace(own, index=own.digest), BlobMissing),
    "no index": (lambda own, _: replace(own, index=None), BlobMissing),
    "another digest": (lambda own, _: replace(own, digest="1" * 64), BlobCorrupt),
}

WAYS: dict[str, Any] = {
    "append": lambda s, it: s.append("note", {"it": it}),
    "a user message": lambda s, it: s.user_message([{"type": "x", "it": it}]),
    "arguments": lambda s, it: s.tool_call("t", {"it": it}, run=print, call_id="c"),
    "a value": lambda s, it: s.value("v", lambda: it),
    "a hook's event": lambda s, it: s.hook("h", it, run=print),
    "a hook's decision": lambda s, it: s.hook("h", 1, run=lambda **_: it),
    "a checkpoint": lambda s, it: s.checkpoint([it]),
    "a summary": lambda s, it: s.compact(it, keep_from=1),
    "a request": lambda s, it: s.model_call({"messages": [], "it": it}, call=print),
    "a response": lambda s, it: s.model_call(
        {"messages": []}, call=lambda **_: {"role": "assistant", "content": [it]}
    ),
    "a result": lambda s, it: s.end(result=it),
}


@pytest.mark.parametrize("lie", LIES)
async def test_no_event_refers_to_what_its_session_does_not_hold(nats_url: str, lie: str) -> None:
    make, kind = LIES[lie]
    content = random.Random(3).randbytes(1_500_000)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as other, log.session() as s:
            own = await s.attach(io.BytesIO(content))
            wrong = make(own, await other.attach(io.BytesIO(content[::-1])))
            for way, refer in WAYS.items():
                with pytest.raises(kind, match=s.id) as refused:
                    await refer(s, wrong)
                assert "nothing was recorded that refers to it" in str(refused.value), way
            result = await s.tool_call("t", {}, run=lambda: wrong, call_id="d")
            assert (result.outcome, result.output["error"]) == ("error", kind.__name__)
            assert (s.state.status, len(s.state.hooks)) == ("running", 0)
            await s.append("note", {"right": own})
        events = [event async for event in log.read(s.id)]
        referred = [blob for event in events for blob in held.references(event.raw)]
        assert referred == [own]
        async with log.session(id=s.id) as again:
            assert again.state.open_request is None


async def test_another_sessions_blob_is_taken_by_attaching_it(nats_url: str) -> None:
    content = random.Random(3).randbytes(2_000_000)
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as parent, parent.child(name="c") as child:
            blob = await parent.attach(io.BytesIO(content))
            with pytest.raises(BlobMissing, match="attach"):
                await child.append("note", {"it": blob})
            assert await child.attach(log.blob(parent.id, blob)) == blob
            await child.append("note", {"it": blob})
        assert b"".join([piece async for piece in log.blob(child.id, blob)]) == content


async def test_what_an_earlier_process_attached_is_found_and_stored_anew(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            blob = await s.attach(io.BytesIO(bytes(2_000_000)))
        subject = names.blob_subject(TENANT, s.id, str(blob.index))
        before = await log.bus.last(BLOB_STREAM, subject)
        async with log.session(key="k") as s:
            await s.append("note", {"it": blob})
            after = await log.bus.last(BLOB_STREAM, subject)
            await s.append("note", {"it": blob})  # found once, it is known
            assert before is not None
            assert after is not None
            assert after.sequence > before.sequence
            last = await log.bus.last(BLOB_STREAM, subject)
            assert last is not None
            assert last.sequence == after.sequence


async def test_what_the_log_refers_to_may_be_said_again_though_it_is_lost(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            blob = await s.attach(io.BytesIO(b"a file"))
            await s.user_message([{"type": "document", "file": blob}])
        await log.bus.purge(BLOB_STREAM, names.blob_subject(TENANT, s.id, "*"), below=2**50)
        async with log.session(key="k") as s:
            await s.model_call(
                {"messages": [*s.state.messages(), {"role": "user", "content": [{"it": blob}]}]},
                call=lambda **_: {"role": "assistant", "content": "it is gone"},
            )


async def test_an_item_for_the_inbox_that_refers_to_another_sessions_blob_is_refused(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as other, log.session() as s:
            blob = await other.attach(io.BytesIO(b"a file"))
            await log.say(s.id, [{"type": "document", "file": blob}])
            await log.say(s.id, "a plain word")
            while not s.state.messages():
                await s.wait(5)
            assert [m["content"] for m in s.state.messages()] == ["a plain word"]
        types = [event.type async for event in log.read(s.id)]
        assert types[1:3] == ["inbox_refused", "user_message"]


@pytest.mark.parametrize("bad", ["*", ">", "a.b", "A" * 64, "0" * 63])
def test_a_digest_that_is_none_becomes_no_subject(bad: str) -> None:
    raw = json.dumps({"$flightlog": "blob", "value": {"digest": bad, "size": 1}}).encode()
    assert not isinstance(carry.unpack(raw), Blob)


async def test_a_fork_has_its_own_blobs(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        session, _ = await spilled(log)
        fork = await log.fork(session)
        subject = names.blob_subject(TENANT, session, "*")
        assert await log.bus.purge(BLOB_STREAM, subject, below=2**50)
        assert (await log.state(fork)).messages()[1]["content"] == WORDS


async def test_what_is_attached_stays_apart_from_the_messages(nats_url: str) -> None:
    content = random.Random(3).randbytes(2_000_000)
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        blob = await s.attach(io.BytesIO(content))
        assert await s.value("v", lambda: {"file": blob}) == {"file": blob}
        await s.user_message([{"type": "document", "file": blob}])
        assert s.state.messages() == [
            {"role": "user", "content": [{"type": "document", "file": blob}]}
        ]
        assert b"".join([piece async for piece in log.blob(s.id, blob)]) == content


ANTHROPIC = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "t1", "name": "write", "input": {"text": WORDS}}],
}
OPENAI = {
    "role": "assistant",
    "tool_calls": [
        {
            "id": "t1",
            "type": "function",
            "function": {"name": "write", "arguments": json.dumps({"text": WORDS})},
        }
    ],
}


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("lost", ["missing", "corrupt"])
@pytest.mark.parametrize(
    ("provider", "answer"), [("anthropic", ANTHROPIC), ("openai-chat", OPENAI)]
)
async def test_a_call_whose_arguments_are_lost_waits_for_a_person_and_the_session_goes_on(
    nats_url: str, provider: str, answer: dict[str, Any], lost: str, started: bool
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("write it down")
            await s.model_call(
                {"messages": s.state.messages()}, call=lambda **_: answer, provider=provider
            )
            [call] = s.state.next.calls  # type: ignore[union-attr]
            assert call.arguments == {"text": WORDS}
            if started:
                with pytest.raises(Suspended):
                    async with s.calling(call, on_resume="rerun"):
                        await s.suspend()
        await lose(log, s.id, lost)
        seen = await log.state(s.id)
        assert isinstance(seen.next, RunTools if started else Decide)
        async with log.session(key="k") as s:
            step = s.state.next
            assert isinstance(step, Decide)
            assert [each.call_id for each in step.calls] == ["t1"]
            assert s.id in s.state.calls[0].question
            with pytest.raises(NeedsDecision):
                await s.tool_call(step.calls[0], run=print)
        ruled = functools.partial(inbox.decision, "t1", announced_by=call.announced_by, by="eve")
        await log.send(s.id, ruled(ruling="rerun"))
        async with log.session(key="k") as s:
            assert isinstance(s.state.next, Decide)
            await log.send(s.id, ruled(ruling="result", output="written by hand"))
            assert await s.wait(10)
            assert isinstance(s.state.next, CallModel)
            with pytest.raises((BlobMissing, BlobCorrupt)):
                s.state.messages()
            await s.compact("it was written by hand", keep_from=s.state.seq)
            assert len(s.state.messages()) == 1
        made = [event.payload async for event in log.read(s.id) if event.type == "decision_made"]
        assert [each["ruling"] for each in made] == ["refused", "result"]
        assert "cannot be run again" in made[0]["reason"]


async def lose(log: Log, session: str, how: str) -> None:
    subject = names.blob_subject(TENANT, session, "*")
    assert isinstance(log.bus, NatsBus)
    found = [each async for page in log.bus.subjects(BLOB_STREAM, filter=subject) for each in page]
    if how == "missing":
        assert await log.bus.purge(BLOB_STREAM, subject, below=2**50)
    else:
        for each in found:
            await replaced(log.bus, each.rpartition(".")[2], b"garbage", session=session)


async def test_bytes_files_and_pieces_are_attached_and_what_is_no_bytes_is_refused(
    nats_url: str, tmp_path: Path
) -> None:
    content = random.Random(3).randbytes(1_200_000)
    (tmp_path / "file").write_bytes(content)
    halves = [content[:700_000], bytearray(content[700_000:])]
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with (tmp_path / "file").open("rb") as file:
            sources: list[Any] = [content, bytearray(content), memoryview(content), file]
            sources += [halves, iter(halves), (each for each in halves), stream(content, 9_999)]
            blobs = {await s.attach(each) for each in sources}
        assert blobs == {chunk.describe(content, "bytes")}
        await s.append("note", {"it": [*blobs]})
        wrong: list[Any] = [io.StringIO("x"), "text", ["text"], [1], {"a": 1}, 7, None, lines()]
        for source in wrong:
            with pytest.raises(InvalidValue, match="rb"):
                await s.attach(source)


async def lines() -> AsyncIterator[Any]:
    yield "a line"


def test_a_blob_is_handed_on_without_await(nats_url: str) -> None:
    with blocking.connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        blob = s.attach(b"x" * 2_000_000)
        with s.child(name="c") as child:
            assert child.attach(log.blob(s.id, blob)) == blob
            child.append("note", {"it": blob})


async def test_what_a_refused_attach_has_stored_is_said_to_stay(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        assert isinstance(log.bus, NatsBus)
        await resize(log.bus, 1_300_000)
        with pytest.raises(LogFull) as refused:
            await s.attach(random.Random(1).randbytes(4_000_000))
        await resize(log.bus, -1)
        assert await chunks_of(log.bus) > 0
        assert "no event was stored" in str(refused.value)


def test_what_stands_in_is_as_deep_as_it_was_made() -> None:
    blob = Blob("0" * 64, 9, "text", "1" * 64, "data:;base64,")
    text = stand_in.of(blob)
    assert stand_in.unnested(stand_in.nested(text)) == text
    assert stand_in.blobs(text.encode()) == [Blob("0" * 64, 9, "text", "1" * 64)]
    assert stand_in.made_whole(stand_in.nested(text).encode(), lambda *_: '"') == (
        b'data:;base64,\\\\\\"'
    )
