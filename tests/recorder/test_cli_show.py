"""`flightlog show`: a session as a whole, and what is odd about it."""

from collections.abc import AsyncIterator

import pytest

from flightlog import Log, connect
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from tests.handmade import chain, follow
from tests.recorder.command import flightlog
from tests.recorder.recorded import talk, write
from tests.scripted import TENANT

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def test_turns_tools_and_tokens_are_counted(servers: Servers, log: Log) -> None:
    session = await talk(log, key="nightly: 1", labels={"job": "x"})
    seen = (await flightlog(servers)("show", session, "--json")).json
    assert (seen["status"], seen["turns"], seen["key"]) == ("completed", 2, "nightly: 1")
    assert seen["tools"]["add"] | {"seconds": 0} == {
        "calls": 1,
        "ok": 1,
        "error": 0,
        "unknown": 0,
        "cancelled": 0,
        "open": 0,
        "seconds": 0,
    }
    assert (seen["usage"]["input_tokens"], seen["usage"]["output_tokens"]) == (20, 10)
    assert (seen["undecided"], seen["strays"], seen["damage"]) == ([], [], None)


async def test_a_key_shows_the_same_as_the_id(servers: Servers, log: Log) -> None:
    session = await talk(log, key="nightly: 1")
    command = flightlog(servers)
    by_id = await command("show", session)
    assert by_id.code == 0
    assert "nothing odd" in by_id.out
    assert (await command("show", "nightly: 1")).out == by_id.out
    assert (await command("show", "--key", "nightly: 1")).out == by_id.out


async def test_a_call_that_waits_for_a_person_comes_with_the_command_to_type(
    servers: Servers, log: Log
) -> None:
    session = names.mint()
    started = follow(None, type="session_started", payload=WRITER_1, session=session)
    called = follow(started, type="tool_call", payload=DEPLOY, session=session)
    resumed = follow(called, type="session_resumed", payload=WRITER_2, session=session)
    asked = follow(resumed, type="decision_requested", payload=QUESTION, session=session)
    await write(log, session, [started, called, resumed, asked])
    command = flightlog(servers)
    text = (await command("show", session)).out
    assert "deploy at seq 2 waits for a person: did it?" in text
    assert f"flightlog resolve {session} 't 1' --ruling result|rerun|fail" in text
    [call] = (await command("show", session, "--json")).json["undecided"]
    assert (call["name"], call["call_id"], call["attempt"]) == ("deploy", "t 1", 1)


WRITER_1 = {"writer": {"number": 1, "id": "a"}}
WRITER_2 = {"writer": {"number": 2, "id": "b"}}
DEPLOY = {"name": "deploy", "call_id": "t 1", "arguments": {}}
QUESTION = {"call": {"call_id": "t 1", "announced_by": None}, "question": "did it?"}


async def test_strays_failures_and_orphans_are_odd(servers: Servers, log: Log) -> None:
    session = names.mint()
    first = follow(None, payload={}, session=session)
    call = {"name": "sh", "call_id": "c", "arguments": {}}
    called = follow(first, type="tool_call", payload=call, session=session)
    failed = {"call_id": "c", "outcome": "error", "output": "no"}
    result = follow(called, type="tool_result", payload=failed, session=session)
    orphan = {"call_id": "nobody", "outcome": "ok", "output": ""}
    alone = follow(result, type="tool_result", payload=orphan, session=session)
    await write(log, session, [first, b"garbage", called, result, alone])
    ran = await flightlog(servers)("show", session)
    assert ran.code == 0
    assert "1 message on its subjects that are no events of it: stream sequence 2" in ran.out
    assert "sh ended as error at seq 3" in ran.out
    assert "1 result without an open call, at seq 4" in ran.out


async def test_a_damaged_log_is_shown_to_its_last_good_event(servers: Servers, log: Log) -> None:
    session = names.mint()
    events = chain(6, session=session)
    await write(log, session, [*events[:3], *events[4:]])
    command = flightlog(servers)
    ran = await command("show", session)
    assert ran.code == 1
    assert "3 events" in ran.out
    assert "is damaged after seq 3" in ran.out
    seen = await command("show", session, "--json")
    assert (seen.code, seen.json["seq"], "damaged" in seen.json["damage"]) == (1, 3, True)


async def test_control_characters_never_reach_the_terminal(servers: Servers, log: Log) -> None:
    session = await talk(log, key="a\x1b[2Jb\nc", labels={"\x1b]0;x\x07": "\u202e"})
    ran = await flightlog(servers)("show", session)
    assert "a\\u001b[2Jb c" in ran.out
    assert not {"\x1b", "\x07", "\u202e"} & set(ran.out)
