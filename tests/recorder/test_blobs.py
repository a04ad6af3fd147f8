"""Blobs and the recorder: verified, and collected once nothing can refer to them any more."""

import io
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from flightlog import Blob, BlobCorrupt, Log, connect
from flightlog.blobs.blob import Blobs
from flightlog.blobs.fit import Fit, misfit
from flightlog.bus.nats_bus import NatsBus
from flightlog.wire import chunk
from flightlog.wire import subject as names
from flightlog.wire.chunk import Kind
from flightlog.wire.layout import BLOB_STREAM
from flightlog_recorder.blobs import collect, garbage
from flightlog_recorder.blobs.garbage import Chunk
from flightlog_recorder.inspect.copy import copy
from flightlog_recorder.replay import tape
from flightlog_recorder.replay.source import LiveSource
from flightlog_recorder.replay.words import near
from flightlog_recorder.verify import Checker
from tests.handmade import follow
from tests.recorder.recorded import write
from tests.scripted import TENANT

NO_SKEW = timedelta()
WORDS = "what a tool says " * 100_000

KILLED = """
import asyncio, os, signal, sys
import flightlog
from flightlog.running.journal import Journal

async def main(url, words):
    async with flightlog.connect(nats=url) as log, log.session(key="k") as s:
        await s.user_message("kept " + words)
        async def die(self, draft, deadline=None):
            os.kill(os.getpid(), signal.SIGKILL)
        Journal._send = die
        await s.user_message("lost " + words)

asyncio.run(main(sys.argv[1], "what a tool says " * 100_000))
"""


def bus_of(log: Log) -> NatsBus:
    assert isinstance(log.bus, NatsBus)
    return log.bus


async def chunks_of(log: Log, session: str) -> int:
    subject = names.blob_subject(log.tenant, session, "*")
    return sum([len(page) async for page in bus_of(log).subjects(BLOB_STREAM, filter=subject)])


@pytest.mark.timeout(60)  # a process is started
async def test_a_kill_between_blob_and_event_leaves_garbage_that_is_collected(
    nats_url: str, tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = subprocess.run(  # noqa: ASYNC221 the test waits for its end
        [sys.executable, str(script), nats_url], check=False, env={**os.environ}
    )
    assert done.returncode == -signal.SIGKILL
    async with connect(nats=nats_url) as log:
        session = str(await log.look_up("k"))
        stored = await chunks_of(log, session)
        assert await collect(bus_of(log), log.tenant, session, skew=NO_SKEW) == 0
        assert (await log.state(session)).messages()[0]["content"] == "kept " + WORDS
        async with log.session(key="k") as s:
            assert [m["content"] for m in s.state.messages()] == ["kept " + WORDS]
            # clocks may differ by so much: it could be this writer's
            assert await collect(bus_of(log), log.tenant, session) == 0
        gone = await collect(bus_of(log), log.tenant, session)
        assert 0 < gone == stored - await chunks_of(log, session)
        assert await collect(bus_of(log), log.tenant, session, skew=NO_SKEW) == 0
        assert (await log.state(session)).messages()[0]["content"] == "kept " + WORDS


@pytest.mark.parametrize("where", ["reason", "error"])
async def test_what_a_text_of_the_table_refers_to_is_no_garbage_and_is_verified_and_exported(
    nats_url: str, where: str
) -> None:
    async with connect(nats=nats_url) as log:
        async with log.session() as s:
            await (s.suspend(WORDS) if where == "reason" else s.end("failed", error=WORDS))
        stored = await chunks_of(log, s.id)
        assert stored > 0
        assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0
        last = [event async for event in log.read(s.id)][-1]
        assert (await log.payload(last))[where] == WORDS
        file = io.BytesIO()
        copied = await copy(log.bus, log.tenant, s.id, file)
        assert file.getvalue().count(b'"type":"blob"') == stored
        subject = names.blob_subject(log.tenant, s.id, "*")
        await log.bus.purge(BLOB_STREAM, subject, below=2**50)
        found = await Checker(bus_of(log), None, log.tenant).check(s.id)
        assert [each.kind for each in found.problems] == ["blob"]
        assert (copied.lacks, len((await copy(log.bus, log.tenant, s.id, file)).lacks)) == ([], 1)


async def test_what_a_live_writer_has_stored_is_no_garbage(nats_url: str) -> None:
    async with connect(nats=nats_url) as log:
        async with log.session() as s:
            blob = await Blobs(log.bus, log.tenant, s.id).put(b"to be referred to")
            assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0
            await s.append("note", {"it": blob})
        assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0


async def test_garbage_that_a_new_writer_stores_again_is_none(nats_url: str) -> None:
    async with connect(nats=nats_url) as log:
        async with log.session(key="k") as s:
            await Blobs(log.bus, log.tenant, s.id).put(b"left by a crash")
        async with log.session(key="k") as s:
            blob = await Blobs(log.bus, log.tenant, s.id).put(b"left by a crash")
            assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0
            await s.append("note", {"it": blob})
        assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0


class Visited(NatsBus):
    """A real connection on which somebody opens the session before its last message is asked."""

    visit: Callable[[], Awaitable[object]]

    async def api(self, verb: str, body: bytes = b"") -> dict[str, Any]:
        if b"last_by_subj" in body and b".live" in body:
            await self.visit()
        return await super().api(verb, body)


async def test_garbage_of_a_session_that_is_opened_meanwhile_stays(nats_url: str) -> None:
    async with connect(nats=nats_url) as log, AsyncExitStack() as stack:
        async with log.session(key="k") as s:
            await Blobs(log.bus, log.tenant, s.id).put(b"left by a crash")
        visited = Visited(bus_of(log)._options)
        visited.visit = lambda: stack.enter_async_context(log.session(key="k"))
        await visited.open(5)
        visited.layout = log.bus.layout
        async with visited:
            assert await collect(visited, log.tenant, s.id) == 0
        assert await chunks_of(log, s.id) == 1


async def test_chunks_without_a_log_are_garbage_once_all_are_a_day_old(nats_url: str) -> None:
    async with connect(nats=nats_url) as log:
        await Blobs(log.bus, log.tenant, "sess_x").put(b"x" * 2_000_000)
        assert await collect(bus_of(log), log.tenant, "sess_x") == 0
        assert await collect(bus_of(log), log.tenant, "sess_x", orphaned=timedelta(0)) == 3


def test_what_is_garbage_is_decided_by_when_it_was_stored() -> None:
    now = datetime(2026, 5, 6, tzinfo=UTC)
    old, young = Chunk("a", 1, now - timedelta(days=2)), Chunk("b", 2, now)
    assert garbage.of_session([old, young], now) == [old]
    assert garbage.of_session([old, young], now + timedelta(hours=1)) == [old, young]
    assert garbage.without_log([old, young], now) == []
    assert garbage.without_log([old], now) == [old]


async def test_verify_names_each_blob_that_is_missing_and_goes_on(nats_url: str) -> None:
    async with connect(nats=nats_url) as log:
        async with log.session() as s:
            await s.user_message(WORDS)
            await s.value("v", lambda: {"w": WORDS + "!"})
        checker = Checker(bus_of(log), None, log.tenant)
        assert (await checker.check(s.id)).outcome == "ok"
        (first,) = [
            event.payload["content"]
            async for event in log.read(s.id)
            if event.type == "user_message"
        ]
        assert isinstance(first, Blob)
        subject = names.blob_subject(log.tenant, s.id, str(first.index))
        await log.bus.purge(BLOB_STREAM, subject, below=2**50)
        found = await checker.check(s.id)
        assert [each.kind for each in found.problems] == ["blob"]
        assert "event 2" in found.problems[0].what
        assert str(first.index) in found.problems[0].what
        assert (found.outcome, found.events) == ("problem", 4)
        assert await collect(bus_of(log), log.tenant, s.id, skew=NO_SKEW) == 0


RANDOM = random.Random(5).randbytes(1_500_000)


def wrong(blob: Blob, how: str) -> Blob:
    """A reference to the content that says something else of it."""
    match how:
        case "digest":
            return replace(blob, digest="ab" * 32)
        case "size":
            return replace(blob, size=blob.size - 1)
        case _:
            return replace(blob, kind=cast("Kind", how))


async def forged(log: Log, payload: Callable[[Blob], dict[str, Any]]) -> tuple[str, Blob]:
    """A session with a right reference to content, and one of another author's that is wrong."""
    async with log.session() as s:
        blob = await s.attach(io.BytesIO(RANDOM))
        await s.append("note", {"right": blob})
    last = [event async for event in log.read(s.id)][-1]
    body = follow(last, type="user_message", payload=payload(blob), session=s.id)
    await write(log, s.id, [body], last=last.sequence)
    return s.id, blob


@pytest.mark.parametrize("how", ["digest", "size", "text", "json", "items"])
async def test_a_reference_that_does_not_fit_its_content_is_named_and_spoils_no_other(
    nats_url: str, how: str
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        kind = cast("Kind", "json" if how in ("digest", "size") else how)
        session, blob = await forged(
            log, lambda it: {"content": replace(wrong(it, how), kind=kind)}
        )
        events = [event async for event in log.read(session)]
        for attempt in (log.payload(events[-1]), checked(log, session)):
            with pytest.raises(BlobCorrupt, match=session):
                await attempt
        assert (await log.payload(events[1])) == {"right": blob}
        found = await Checker(bus_of(log), None, log.tenant).check(session)
        assert [each.kind for each in found.problems] == ["blob"]
        assert f"event {events[-1].seq}" in found.problems[0].what
        async with log.session(id=session) as s:
            with pytest.raises(BlobCorrupt):
                s.state.messages()
            await s.compact("what was said", keep_from=s.state.seq)
            assert len(s.state.messages()) == 1
        shown = await tape.opened(LiveSource(log, session))
        assert (await near(await shown.event(4), shown.whole)) == (await shown.event(4)).raw


async def checked(log: Log, session: str) -> object:
    return (await log.state(session)).messages()


@pytest.mark.parametrize("how", ["digest", "size"])
async def test_a_copy_is_not_made_of_what_is_not_whole_without_a_word(
    nats_url: str, how: str
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        session, _ = await forged(log, lambda blob: {"content": [wrong(blob, how)]})
        copied = await copy(log.bus, log.tenant, session, io.BytesIO())
        assert len(copied.lacks) == 1
        assert "give other content" in copied.lacks[0]
        with pytest.raises(BlobCorrupt, match=session):
            await log.fork(session)
        assert await log.fork(session, at=3)


def test_a_kind_is_judged_piece_by_piece_as_it_is_as_a_whole() -> None:
    texts = ["a", "é€😀" * 3, '{"a":[1,"é"]}', "[1", "", "\ud800x\udfff"]
    contents = [text.encode("utf-8", "surrogatepass") for text in texts]
    contents += [b"\xff", b"a\xf0\x9f", "é".encode()[:1], b"\x80abc", b"abc\x80\x80\x80\x80"]
    for content in contents:
        for kind in ("text", "json", "items", "bytes"):
            blob = chunk.describe(content, kind)
            why = misfit(blob, content)
            for size in (1, 2, 3, 7):
                for large in (False, True):
                    fit = Fit(blob)
                    fit._is_kept &= not large
                    for at in range(0, len(content), size):
                        fit.feed(content[at : at + size])
                    expected = misfit(replace(blob, kind="text"), content) if large else why
                    assert (fit.why() is None) == (kind == "bytes" or expected is None)
