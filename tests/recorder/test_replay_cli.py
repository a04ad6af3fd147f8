"""`flightlog replay`: states, events, deltas, requests and partings, as its users have them."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flightlog import Log, connect
from flightlog.event import rechain
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from tests.handmade import chain, follow
from tests.recorder.command import Command, flightlog
from tests.recorder.recorded import project, talk, write
from tests.scripted import TENANT, Model, says, stored

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

GOLDEN = str(Path(__file__).parents[1] / "golden" / "events-v1.jsonl")
NOWHERE = {"FLIGHTLOG_NATS_URL": "nats://127.0.0.1:9", "FLIGHTLOG_REDIS_URL": "redis://127.0.0.1:9"}


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


def on_file() -> Command:
    """The command with no server within reach."""
    return Command(NOWHERE)


async def test_the_answer_says_which_snapshot_and_events_made_the_state(
    servers: Servers, log: Log
) -> None:
    session = names.mint()
    events = chain(60, session=session)
    last = await write(log, session, events[:40])
    await project(log, session)
    await write(log, session, events[40:], last=last)
    command = flightlog(servers)
    ran = await command("replay", session, "--until", "47")
    assert ran.code == 0
    assert "seq 47 of 60" in ran.out
    assert "snapshot @ 40, applied 41..47" in ran.out
    seen = (await command("replay", session, "--until", "47", "--json")).json
    assert (seen["snapshot"], seen["applied"], seen["state"]["seq"]) == (40, [41, 47], 47)
    assert (
        "no snapshot before it, applied 1..7"
        in (await command("replay", session, "--until", "7")).out
    )


async def test_the_state_says_what_was_done_and_what_is_waited_for(
    servers: Servers, log: Log
) -> None:
    session = await talk(log, key="nightly: 1")
    command = flightlog(servers)
    told = [
        (await command("replay", "nightly: 1", "--until", str(seq), "--json")).json["headline"]
        for seq in range(1, 9)
    ]
    assert told == [
        "waiting for the user",
        "waiting for the model",
        "waiting for the model, asked at 3",
        "1 tool call to run (add)",
        "waiting for 1 tool (add)",
        "1 tool call completed, waiting for the model",
        "1 tool call completed, waiting for the model, asked at 7",
        "waiting for the user",
    ]
    assert "completed" in (await command("replay", session)).out


async def test_effects_behind_the_point_are_named_as_not_undone(servers: Servers, log: Log) -> None:
    session = await talk(log)
    command = flightlog(servers)
    ran = await command("replay", session, "--until", "4")
    assert "1 external effect after 4 is not undone: 5 add" in ran.out
    under_way = (await command("replay", session, "--until", "5")).out
    assert "1 external effect after 5 is not undone: 5 add" in under_way
    assert "not undone" not in (await command("replay", session, "--until", "6")).out
    seen = (await command("replay", session, "--until", "4", "--json")).json
    assert seen["effects_after"]["tools"] == {"add": 1}


async def test_a_diff_shows_the_event_and_the_delta(servers: Servers, log: Log) -> None:
    session = await talk(log)
    command = flightlog(servers)
    ran = await command("replay", session, "--diff", "5..6")
    assert ran.code == 0
    assert "tool_result" in ran.out
    assert '~ calls["t1 of 4"].phase: "running" -> "done"' in ran.out
    seen = (await command("replay", session, "--diff", "5..6", "--json")).json
    assert [event["seq"] for event in seen["events"]] == [6]
    [phase] = [each for each in seen["changes"] if each["path"][-1] == "phase"]
    assert (phase["kind"], phase["old"], phase["new"]) == ("changed", "running", "done")


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (("--type", "user_message"), [2]),
        (("--tool", "add"), [5, 6]),
        (("--tool", "add", "--from", "6"), [6]),
        (("--grep", "1 \\+ 1"), [2]),
        (("--from", "3", "--until", "4"), [3, 4]),
        (("--errors",), []),
    ],
)
async def test_events_are_selected(
    servers: Servers, log: Log, options: tuple[str, ...], seqs: list[int]
) -> None:
    session = await talk(log)
    ran = await flightlog(servers)("replay", session, *options, "--json")
    assert ran.code == 0
    assert [event["seq"] for event in ran.lines] == seqs
    plain = await flightlog(servers)("replay", session, *options)
    assert [int(line.split()[0]) for line in plain.out.splitlines()] == seqs


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        (("--errors",), [15, 18, 34, 38]),
        (("--errors", "--until", "20"), [15, 18]),
        (("--errors", "--type", "model_response"), [38]),
        (("--tool", "ls", "--type", "tool_result"), [8]),
        (("--tool", "ls", "--tool", "rm"), [7, 8, 9, 15]),
        (("--grep", "^lés", "--from", "4"), [4]),
        (("--grep", "(nowhere|OVERLOADED)"), [38]),
    ],
)
async def test_what_is_asked_for_together_must_all_be_true(
    options: tuple[str, ...], seqs: list[int]
) -> None:
    ran = await on_file()("replay", "--file", GOLDEN, *options, "--json")
    assert (ran.code, [event["seq"] for event in ran.lines]) == (0, seqs)


async def test_a_text_that_changed_is_shown_line_by_line(tmp_path: Path) -> None:
    text = "\n".join(f"line {n}" for n in range(60))
    first = follow(None, type="checkpoint", payload={"label": "a", "data": text})
    other = text.replace("line 30\n", "line thirty\n").replace("line 31\n", "")
    said = {"label": "a", "data": other, "more": {"path": 1}}
    second = follow(first, type="checkpoint", payload=said)
    path = tmp_path / "s.jsonl"
    path.write_bytes(first.body + b"\n" + second.body + b"\n")
    ran = await on_file()("replay", "--file", str(path), "--diff", "1..2")
    delta = ran.out[ran.out.index("~ checkpoint.data") :].splitlines()
    signs = [line.split() for line in delta if line.lstrip().startswith(("+", "-"))]
    assert signs == [["-", "line", "30"], ["-", "line", "31"], ["+", "line", "thirty"]]
    assert any("line 29" in line for line in delta)
    assert not any(line.strip() == "line 3" for line in delta)
    assert "~ checkpoint.seq: 1 -> 2" in ran.out
    grown = await on_file()("replay", "--file", str(path), "--diff", "0..1")
    assert "~ checkpoint: null -> {" in grown.out


async def test_calls_that_only_read_are_no_effects(servers: Servers, log: Log) -> None:
    async with log.session() as session:
        await session.tool_call("look", {}, call_id="a", run=lambda: 1, effect="read")
        await session.tool_call("mail", {}, call_id="b", run=lambda: 1, effect="write")
        await session.tool_call("odd", {}, call_id="c", run=lambda: 1)
    seen = (await flightlog(servers)("replay", session.id, "--until", "1", "--json")).json
    assert seen["effects_after"]["tools"] == {"mail": 1, "odd": 1}
    forked = (await flightlog(servers)("fork", session.id, "--at", "1", "--json")).json
    assert forked["not_undone"] == {"mail": 1, "odd": 1}
    read = (await flightlog(servers)("fork", session.id, "--at", "2", "--json")).json
    assert read["not_undone"] == {"mail": 1, "odd": 1}


async def test_a_request_is_given_as_it_was_sent_with_its_proof(servers: Servers, log: Log) -> None:
    session = await talk(log)
    command = flightlog(servers)
    ran = await command("replay", session, "--request", "7")
    recorded = json.loads((await stored(log, session))[6].body)["payload"]["context"]["digest"]
    assert hashlib.sha256(ran.out.encode()).hexdigest() == recorded
    assert recorded in ran.err
    [asked, called, result] = json.loads(ran.out)["messages"]
    assert asked == {"role": "user", "content": "what is 1 + 1?"}
    assert called["content"][0]["id"] == result["content"][0]["tool_use_id"] == "t1"
    seen = (await command("replay", session, "--request", "7", "--json")).json
    assert (seen["digest"], seen["proved"], seen["upto"]) == (recorded, True, 6)


async def test_a_request_that_lies_in_blobs_is_made_whole(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    model = Model(says("long"), says("yes"))
    async with log.session() as session:
        await session.user_message("x" * 900_000)
        for _ in range(2):
            request = {"model": "m", "messages": session.state.messages(), "system": "y" * 500_000}
            await session.model_call(request, call=model)
            await session.user_message("go on")
    events = await stored(log, session.id)
    seq = [event.seq for event in events if event.type == "model_request"][-1]
    assert all(len(event.body) < 300_000 for event in events)
    ran = await flightlog(servers)("replay", session.id, "--request", str(seq))
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == model.requests[-1]
    file = tmp_path / "s.jsonl"
    await flightlog(servers)("export", session.id, "--out", str(file))
    copy = await Command(NOWHERE)("replay", "--file", str(file), "--request", str(seq))
    assert (copy.code, copy.out) == (0, ran.out)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[: len(events)]))
    bare = await Command(NOWHERE)("replay", "--file", str(file), "--request", str(seq))
    assert (bare.code, bare.out, "has no blob" in bare.err) == (1, "", True)


async def test_words_in_a_blob_are_found_and_shown(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    async with log.session() as session:
        await session.user_message("hay\n" * 100_000 + "needle")
        await session.user_message("straw\n" * 4_000_000 + "needle")
    command = flightlog(servers)
    ran = await command("replay", session.id, "--grep", "needle$", "--json")
    assert [each["seq"] for each in ran.lines] == [2]
    assert "not searched: the blobs of 1 event" in ran.err
    assert "hay" in (await command("replay", session.id, "--diff", "1..2")).out.split("->")[0]
    file = tmp_path / "s.jsonl"
    await command("export", session.id, "--out", str(file))
    copy = await Command(NOWHERE)("replay", "--file", str(file), "--grep", "needle$", "--json")
    assert [each["seq"] for each in copy.lines] == [2]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]))
    bare = await Command(NOWHERE)("replay", "--file", str(file), "--grep", "needle$", "--json")
    assert (bare.lines, "not searched: the blobs of 2 events" in bare.err) == ([], True)


async def test_a_request_that_the_log_does_not_prove_is_a_problem(
    servers: Servers, log: Log
) -> None:
    session = names.mint()
    first = follow(None, type="user_message", payload={"content": "hi"}, session=session)
    context = {"upto": 1, "digest": "00" * 32}
    asked = {"model": "m", "order": ["model", "messages"], "context": context}
    await write(
        log, session, [first, follow(first, type="model_request", payload=asked, session=session)]
    )
    ran = await flightlog(servers)("replay", session, "--request", "2")
    assert (ran.code, ran.out) == (1, "")
    assert "does not give the recorded digest" in ran.err
    ran = await flightlog(servers)("replay", session, "--request", "1")
    assert "event 1 of session" in ran.err
    assert "no model_request" in ran.err


async def test_a_copy_that_goes_on_otherwise_parts_where_it_does(
    servers: Servers, log: Log
) -> None:
    session, copy = await talk(log), names.mint()
    copied = None
    bodies = []
    for event in (await stored(log, session))[:6]:
        copied = rechain(event.body, session_id=copy, prev=copied.digest if copied else None)
        bodies.append(copied)
    fork = {"session": session, "seq": 6, "digest": "ab"}
    last = follow(copied, type="session_forked", payload=fork, session=copy)
    await write(log, copy, [*bodies, last])
    command = flightlog(servers)
    ran = await command("replay", session, "--compare", copy)
    assert ran.code == 0
    assert "the same up to seq 6" in ran.out
    assert "one is a fork of the other at seq 6" in ran.out
    seen = (await command("replay", copy, "--compare", session, "--json")).json
    assert (seen["same"], seen["forked_at"]) == (6, 6)
    assert [side["event"]["type"] for side in seen["sessions"]] == [
        "session_forked",
        "model_request",
    ]


async def test_a_fork_parts_from_its_source_where_it_was_made(servers: Servers, log: Log) -> None:
    session = await talk(log)
    made = await log.fork(session, at=6)
    async with log.session(id=made) as fork:
        await fork.user_message("another way")
    command = flightlog(servers)
    seen = (await command("replay", session, "--compare", made, "--json")).json
    assert (seen["same"], seen["forked_at"]) == (6, 6)
    again = await log.fork(made)
    seen = (await command("replay", made, "--compare", again, "--json")).json
    assert seen["same"] == seen["forked_at"] == (await log.state(made)).seq


async def test_two_events_that_differ_in_one_field_say_which(servers: Servers, log: Log) -> None:
    sessions = [names.mint(), names.mint()]
    for session, content in zip(sessions, ("to be", "not to be"), strict=True):
        first = follow(None, payload={"n": 1}, session=session)
        said = follow(first, type="user_message", payload={"content": content}, session=session)
        await write(log, session, [first, said])
    ran = await flightlog(servers)("replay", sessions[0], "--compare", sessions[1])
    assert "the same up to seq 1" in ran.out
    assert '~ content: "to be" -> "not to be"' in ran.out


@pytest.mark.parametrize(
    "options",
    [
        ("--until", "20"),
        ("--diff", "19..20"),
        ("--errors",),
        ("--request", "24"),
        ("--compare", GOLDEN),
        ("--from", "30"),
        ("--check", "session"),
    ],
)
async def test_a_file_needs_no_server(options: tuple[str, ...]) -> None:
    for machine in ((), ("--json",)):
        ran = await on_file()("replay", "--file", GOLDEN, *options, *machine)
        assert ran.code == 0, ran.err
        assert ran.out


async def test_a_damaged_file_is_shown_to_its_last_good_event(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    events = chain(6)
    path.write_bytes(b"".join(each.body + b"\n" for each in [*events[:3], *events[4:]]))
    ran = await on_file()("replay", "--file", str(path), "--from", "1", "--json")
    assert (ran.code, len(ran.lines)) == (1, 3)
    assert "s.jsonl is damaged after seq 3" in ran.err


async def test_hostile_texts_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    nasty = "a\x1b[2Jb\u202ec\x9b\x07\n\x1b]0;x" + "y" * 1_000_000
    first = follow(None, type="user_message", payload={"content": nasty})
    said = {"name": nasty, "call_id": nasty, "arguments": {nasty: [nasty]}}
    second = follow(first, type="tool_call", payload=said)
    path.write_bytes(first.body + b"\n" + second.body + b"\n")
    for options in (("--until", "2"), ("--diff", "0..2"), ("--diff", "1..2"), ("--from", "1")):
        ran = await on_file()("replay", "--file", str(path), *options)
        assert ran.code == 0, ran.err
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(ran.out)
        assert max(map(len, ran.out.splitlines())) < 2_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--file", GOLDEN, "--diff", "7"), "two seqs"),
        (("--file", GOLDEN, "--diff", "7..3"), "goes forward"),
        (("--file", GOLDEN, "--grep", "("), "regular expression"),
        (("--file", GOLDEN, "--diff", "1..2", "--request", "5"), "one of"),
        (("--file", GOLDEN, "--errors", "--request", "5"), "not with --request"),
        (("--file", GOLDEN, "--until", "5", "--diff", "1..2"), "not with --diff"),
        (("--file", GOLDEN, "--from", "5", "--request", "5"), "not with --request"),
        (("--file", GOLDEN, "sess_1"), "or --file"),
        ((), "name one session"),
    ],
)
async def test_what_cannot_be_meant_is_refused_in_a_line(
    arguments: tuple[str, ...], said: str
) -> None:
    ran = await on_file()("replay", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


async def test_a_seq_that_is_not_there_is_a_problem() -> None:
    ran = await on_file()("replay", "--file", GOLDEN, "--until", "99")
    assert (ran.code, ran.out) == (1, "")
    assert "has no event 99: its last is 39" in ran.err
