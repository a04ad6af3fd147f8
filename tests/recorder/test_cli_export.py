"""`flightlog export`: the stored bytes, one event a line, whole or not at all."""

import base64
import hashlib
import json
import stat
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest

from flightlog import Log, connect
from flightlog.blobs import zstd
from flightlog.wire import chunk
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from flightlog_recorder.inspect.copy import copy
from tests.handmade import chain, follow, seal
from tests.recorder.command import flightlog
from tests.recorder.recorded import talk, write
from tests.scripted import TENANT, stored

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


def held(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_a_line_is_a_stored_body_and_the_chain_can_be_checked_from_the_file(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    session = await talk(log, key="any key")
    out = tmp_path / "session.jsonl"
    ran = await flightlog(servers)("export", "any key", "--out", str(out))
    assert (ran.code, ran.out) == (0, "")
    lines = out.read_bytes().splitlines()
    assert lines == [event.body for event in await stored(log, session)]
    digests = [None, *(hashlib.sha256(line).hexdigest() for line in lines)]
    assert [json.loads(line)["prev"] for line in lines] == digests[:-1]


async def test_a_file_is_its_owners_and_no_draft_stays(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    session = await talk(log)
    out = tmp_path / "session.jsonl"
    out.write_text("old")
    await flightlog(servers)("export", session, "--out", str(out))
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert held(tmp_path) == [out]


async def test_stdout_gets_the_same_bytes(servers: Servers, log: Log) -> None:
    session = await talk(log)
    ran = await flightlog(servers)("export", session)
    assert ran.out.encode() == b"".join(e.body + b"\n" for e in await stored(log, session))


async def test_a_sealed_base_comes_first_and_the_seal_is_no_line(
    servers: Servers, log: Log
) -> None:
    session = names.mint()
    events = chain(3, session=session)
    await write(log, session, [*events, seal(events, session=session)], part="base")
    later = follow(events[-1], session=session)
    await write(log, session, [later])
    ran = await flightlog(servers)("export", session)
    assert ran.out.encode().splitlines() == [each.body for each in [*events, later]]


async def test_a_damaged_log_leaves_the_old_file_and_until_saves_the_good_part(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    session = names.mint()
    events = chain(5, session=session)
    await write(log, session, [*events[:2], *events[3:]])
    out = tmp_path / "session.jsonl"
    out.write_text("old")
    command = flightlog(servers)
    ran = await command("export", session, "--out", str(out))
    assert (ran.code, out.read_text(), held(tmp_path)) == (1, "old", [out])
    assert "is damaged after seq 2" in ran.err
    ran = await command("export", session, "--until", "2")
    assert ran.code == 0
    assert ran.out.encode().splitlines() == [each.body for each in events[:2]]


async def test_a_body_with_a_line_break_is_refused_by_seq(servers: Servers, log: Log) -> None:
    session = names.mint()
    first = follow(None, payload="x", session=session)
    pretty = json.dumps(json.loads(follow(first, session=session).body), indent=2).encode()
    await write(log, session, [first, pretty])
    command = flightlog(servers)
    ran = await command("export", session)
    assert (ran.code, ran.out) == (1, "")
    assert "event 2" in ran.err
    assert (await command("export", session, "--until", "1")).out.encode() == first.body + b"\n"


async def test_what_a_fenced_writer_wrote_is_cut_off_again(log: Log) -> None:
    session = names.mint()
    first, *lost = chain(3, session=session)
    writer = {"writer": {"number": 2, "id": "b"}}
    won = follow(first, type="session_resumed", payload=writer, session=session)
    last = follow(won, session=session)
    await write(log, session, [first, *lost, won, last])
    file = BytesIO()
    assert (await copy(log.bus, TENANT, session, file)).events == 3
    assert file.getvalue().splitlines() == [first.body, won.body, last.body]


async def test_a_base_without_a_seal_is_not_exported(servers: Servers, log: Log) -> None:
    session = names.mint()
    await write(log, session, chain(3, session=session), part="base")
    ran = await flightlog(servers)("export", session)
    assert (ran.code, ran.out) == (1, "")
    assert "there is no session" in ran.err


async def test_a_file_holds_the_blobs_that_its_events_refer_to(servers: Servers, log: Log) -> None:
    words = "what a tool says " * 100_000
    async with log.session() as s:
        await s.user_message(words)
        await s.checkpoint({"same": words})
    ran = await flightlog(servers)("export", s.id)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["type"] for line in lines[:4]] == [
        "session_started", "user_message", "checkpoint", "session_suspended",
    ]  # fmt: skip
    blob, chunks = lines[1]["payload"]["content"]["value"], lines[4:]
    assert {line["type"] for line in chunks} == {"blob"}
    assert not any("seq" in line for line in chunks)
    found = {
        c["digest"]: zstd.decompress(base64.b64decode(c["frame"]), most=chunk.SIZE) for c in chunks
    }
    listed = chunk.listed(found[blob["index"]])
    assert listed is not None
    assert b"".join(found[digest] for digest in listed).decode() == words
    subject = names.blob_subject(TENANT, s.id, blob["index"])
    await log.bus.purge("FLIGHTLOG_blobs", subject, below=2**50)
    ran = await flightlog(servers)("export", s.id)
    assert (ran.code, len(ran.out.splitlines())) == (1, 4)
    assert blob["index"] in ran.err
