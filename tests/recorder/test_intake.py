"""Transcripts taken into the log: once per content, sealed, and open to be continued."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flightlog import AwaitUser, KeyTaken, Log, connect
from flightlog.bus import nats_bus
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Message
from flightlog.reading import reader
from flightlog.snapshot import SESSION
from flightlog.wire import subject as names
from flightlog.writing import keys, seal
from flightlog_recorder.importer import Imported, intake, read_claude_code
from flightlog_recorder.importer import keys as keys_of
from flightlog_recorder.importer.intake import Taken, take
from tests.scripted import TENANT, Model, chain_is_whole, payloads, says, stored, types

DATA = Path(__file__).parent / "data"
PARALLEL = DATA / "parallel.jsonl"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await nats_bus.connect_bus(nats_url)
    yield bus
    await bus.close()


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        yield log


def said(n: int) -> bytes:
    message = {"role": "user", "content": f"line {n}"}
    record = {"type": "user", "uuid": f"u{n}", "sessionId": "abc", "message": message}
    return json.dumps(record).encode() + b"\n"


def transcript(tmp_path: Path, lines: int) -> Imported:
    path = tmp_path / "abc.jsonl"
    path.write_bytes(b"".join(map(said, range(lines))))
    return read_claude_code(path)


async def count(bus: NatsBus) -> int:
    found = await bus.api("STREAM.INFO.FLIGHTLOG_0")
    return int(found["state"]["messages"])


async def test_every_draft_becomes_an_event_between_the_start_and_the_source(
    bus: NatsBus, log: Log
) -> None:
    imported = read_claude_code(PARALLEL)
    taken = await take(bus, TENANT, imported, labels={"team": "a"})
    events = await stored(log, taken.session)
    assert chain_is_whole(events)
    kinds = ["session_started", *(draft.type for draft in imported.drafts), "session_imported"]
    assert [event.type for event in events] == kinds
    assert [bytes(event.raw) for event in events[1:-1]] == [
        bytes(d.payload) for d in imported.drafts
    ]
    assert events[-1].payload["hash"] == imported.hash
    assert events[-1].payload["path"] == str(PARALLEL)
    assert (await log.state(taken.session)).labels == {**imported.labels, "team": "a"}


async def test_the_answer_of_a_call_names_it_as_its_parent(bus: NatsBus, log: Log) -> None:
    taken = await take(bus, TENANT, read_claude_code(PARALLEL))
    events = await stored(log, taken.session)
    results = [event for event in events if event.type == "tool_result"]
    assert results
    for result in results:
        call = events[(result.parent_seq or 0) - 1]
        assert call.type == "tool_call"
        assert call.payload["call_id"] == result.payload["call_id"]


async def test_importing_the_same_bytes_twice_adds_nothing(bus: NatsBus, tmp_path: Path) -> None:
    first = await take(bus, TENANT, transcript(tmp_path, 5))
    before = await count(bus)
    again = await take(bus, TENANT, transcript(tmp_path, 5))
    assert (again.session, again.made, again.events) == (first.session, "was there", first.events)
    assert await count(bus) == before


async def test_a_file_that_has_grown_becomes_a_new_session_that_names_the_earlier_one(
    bus: NatsBus, log: Log, tmp_path: Path
) -> None:
    sizes = (2, 3, 4)
    first, second, third = [await take(bus, TENANT, transcript(tmp_path, n)) for n in sizes]
    assert (second.earlier, third.earlier) == (first.session, second.session)
    [source] = await payloads(log, third.session, "session_imported")
    assert source["earlier"] == second.session
    assert len({first.session, second.session, third.session}) == 3


async def test_a_file_that_was_rewritten_names_no_earlier_one(bus: NatsBus, tmp_path: Path) -> None:
    await take(bus, TENANT, transcript(tmp_path, 2))
    path = tmp_path / "abc.jsonl"
    path.write_bytes(said(7) + said(8) + said(9))
    assert (await take(bus, TENANT, read_claude_code(path))).earlier is None


async def test_two_imports_of_one_file_at_once_make_one_session(
    bus: NatsBus, tmp_path: Path
) -> None:
    imported = transcript(tmp_path, 700)
    other = await bus.twin(echo=True)
    try:
        both = [take(each, TENANT, imported) for each in (bus, other)]
        found = await asyncio.gather(*both, return_exceptions=True)
    finally:
        await other.close()
    taken = [each for each in found if isinstance(each, Taken)]
    assert taken
    assert len({each.session for each in taken}) == 1
    again = await take(bus, TENANT, imported)
    assert (again.session, again.events) == (taken[0].session, 702)


async def test_an_import_that_died_half_way_is_given_up_and_done_again(
    bus: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "STILL", 0.2)
    imported = transcript(tmp_path, 700)
    dead = await die_half_way(bus, imported, key="by hand")
    taken = await take(bus, TENANT, imported, key="by hand")
    assert (taken.made, taken.events) == ("new", 702)
    assert taken.session != dead
    assert (await seal.look(bus, TENANT, dead)).standing == "abandoned"
    assert (await reader.fold(bus, TENANT, dead, SESSION)).presence != "present"


async def die_half_way(bus: NatsBus, imported: Imported, *, key: str) -> str:
    """What a killed import leaves: its keys, and a base without a seal."""
    entry = await keys.claim(bus, TENANT, keys_of(imported).content, made_by="import")
    await keys.claim(bus, TENANT, key, made_by="import", id=entry.id)
    drafts = intake._drafts(imported, key, {}, None)
    with pytest.raises(RuntimeError):
        await seal.write_base(bus, TENANT, entry.id, cut(drafts))
    assert (await seal.look(bus, TENANT, entry.id)).standing == "open"
    return entry.id


async def cut(drafts: Any) -> AsyncIterator[Any]:
    for n, draft in enumerate(drafts):
        if n == 300:
            raise RuntimeError("killed")
        yield draft


async def test_a_key_opens_the_imported_session_and_belongs_to_one(
    bus: NatsBus, log: Log, tmp_path: Path
) -> None:
    taken = await take(bus, TENANT, transcript(tmp_path, 2), key="any text: *>@ ü")
    async with log.session(key="any text: *>@ ü") as session:
        assert session.id == taken.session
    before = await count(bus)
    with pytest.raises(KeyTaken) as refused:
        await take(bus, TENANT, read_claude_code(PARALLEL), key="any text: *>@ ü")
    assert refused.value.session == taken.session
    assert await count(bus) == before


async def test_without_a_key_the_source_is_the_key_and_stands_for_the_latest(
    bus: NatsBus, log: Log, tmp_path: Path
) -> None:
    await take(bus, TENANT, transcript(tmp_path, 2))
    latest = await take(bus, TENANT, transcript(tmp_path, 3))
    assert await log.look_up("import:claude-code:abc") == latest.session
    assert (await log.state(latest.session)).key == "import:claude-code:abc"


async def test_nobody_is_notified_of_an_imported_event(bus: NatsBus) -> None:
    heard: list[str] = []

    async def hear(message: Message) -> None:
        heard.append(message.subject)

    ears = await bus.twin(echo=True)
    try:
        await ears.listen(f"{names.PREFIX}.*.*.*.live", hear)
        await ears.listen(f"{names.PREFIX}.*.*.*.base", hear)
        await take(bus, TENANT, read_claude_code(PARALLEL))
    finally:
        await ears.close()
    assert heard
    assert all(subject.endswith(".base") for subject in heard)


async def test_an_imported_session_is_continued_like_any_other(bus: NatsBus, log: Log) -> None:
    taken = await take(bus, TENANT, read_claude_code(PARALLEL))
    model = Model(says("hello again"))
    async with log.session(id=taken.session) as session:
        assert session.state.next == AwaitUser()
        await session.user_message("are you there?")
        request = {"model": "m", "messages": session.state.messages("anthropic")}
        await session.model_call(request, call=model)
        await session.end("completed")
    assert (await types(log, taken.session))[-1] == "session_ended"
    asked = model.requests[0]["messages"]
    assert pairs_are_whole(asked)
    assert len(asked) > 2


def pairs_are_whole(messages: list[dict[str, Any]]) -> bool:
    """Anthropic's rule: each tool_use is answered in the very next message."""
    for before, after in zip(messages, [*messages[1:], {"content": []}], strict=True):
        uses = {b["id"] for b in blocks(before) if b["type"] == "tool_use"}
        results = {b["tool_use_id"] for b in blocks(after) if b["type"] == "tool_result"}
        if not uses <= results:
            return False
    return True


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if isinstance(message["content"], list) else []


async def test_a_line_of_twelve_megabytes_comes_back_whole(
    bus: NatsBus, log: Log, tmp_path: Path
) -> None:
    words = 'a "b"\n' * 2_000_000
    line = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"content": words}}
    line["message"] |= {"role": "user"}  # type: ignore[operator]
    path = tmp_path / "large.jsonl"
    path.write_text(json.dumps(line) + "\n")
    taken = await take(bus, TENANT, read_claude_code(path))
    async for event in log.read(taken.session):
        assert len(event.body) < 2_000
    assert [m["content"] for m in (await log.state(taken.session)).messages()] == [words]
