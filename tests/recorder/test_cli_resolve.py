"""`flightlog resolve`: a person's ruling, through the inbox, taken by the session's writer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from flightlog import Decide, Log, RunTools, Session, connect
from flightlog.running import inbox
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from tests.handmade import follow
from tests.recorder.command import flightlog
from tests.recorder.recorded import write
from tests.scripted import TENANT, payloads, types, until

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


async def interrupted(log: Log, *calls: tuple[int | None, str]) -> str:
    """A session whose process died with these calls in flight, each (announced by, id)."""
    session = names.mint()
    started = {"writer": {"number": 1, "id": "a"}}
    events = [follow(None, type="session_started", payload=started, session=session)]
    for announced_by, call_id in calls:
        call = {"name": "deploy", "call_id": call_id, "announced_by": announced_by}
        said = {**call, "arguments": {"to": "prod"}, "on_resume": "ask"}
        events.append(follow(events[-1], type="tool_call", payload=said, session=session))
    await write(log, session, events)
    return session


async def decided(session: Session) -> None:
    while isinstance(session.state.next, Decide) or session.state.next == RunTools(()):
        await session.wait()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("options", "outcome", "output"),
    [
        (["--ruling", "result", "--output", '{"ok": true}'], "ok", {"ok": True}),
        (["--ruling", "fail"], "unknown", None),
    ],
    ids=["result", "fail"],
)
async def test_a_ruling_is_taken_by_the_writer(
    servers: Servers, log: Log, options: list[str], outcome: str, output: object
) -> None:
    session = await interrupted(log, (None, "c1"))
    command = flightlog(servers)
    async with log.session(id=session) as held:
        waiting = asyncio.create_task(decided(held))
        ran = await command("resolve", session, "c1", *options, "--reason", "saw it", "--wait")
        await waiting
    assert (ran.code, "taken by the session's writer" in ran.out) == (0, True)
    [made] = await payloads(log, session, "decision_made")
    assert (made["ruling"], made["reason"]) == (options[1], "saw it")
    [result] = await payloads(log, session, "tool_result")
    assert (result.get("outcome", "ok"), result["resolved_by"]) == (outcome, "person")
    assert output is None or result["output"] == output


async def test_the_decider_is_named_in_the_log(servers: Servers, log: Log) -> None:
    session = await interrupted(log, (None, "c1"))
    async with log.session(id=session):
        pass
    ran = await flightlog(servers)(
        "resolve", session, "c1", "--ruling", "rerun", "--reason", "r", "--by", "ada"
    )
    assert (ran.code, "when it runs next" in ran.out) == (0, True)
    async with log.session(id=session):
        pass
    [made] = await payloads(log, session, "decision_made")
    assert (made["by"], made["ruling"]) == ("ada", "rerun")


async def test_the_output_may_come_from_a_file(servers: Servers, log: Log, tmp_path: Path) -> None:
    session = await interrupted(log, (None, "c1"))
    async with log.session(id=session):
        pass
    (tmp_path / "out.json").write_text('["from", "a", "file"]')
    file = f"@{tmp_path / 'out.json'}"
    options = ["--ruling", "result", "--output", file, "--reason", "r"]
    assert (await flightlog(servers)("resolve", session, "c1", *options)).code == 0
    async with log.session(id=session):
        pass
    [result] = await payloads(log, session, "tool_result")
    assert result["output"] == ["from", "a", "file"]


async def test_a_call_that_does_not_wait_is_refused_and_those_that_do_are_named(
    servers: Servers, log: Log
) -> None:
    session = await interrupted(log, (None, "c1"))
    async with log.session(id=session):
        pass
    before = await types(log, session)
    ran = await flightlog(servers)("resolve", session, "c9", "--ruling", "fail", "--reason", "r")
    assert (ran.code, ran.out) == (1, "")
    assert "c1 (deploy)" in ran.err
    async with log.session(id=session):
        pass
    assert "decision_made" not in (await types(log, session))[len(before) :]


async def test_two_calls_of_one_id_are_told_apart_by_their_announcement(
    servers: Servers, log: Log
) -> None:
    session = await interrupted(log, (5, "c1"), (7, "c1"))
    async with log.session(id=session):
        pass
    command = flightlog(servers)
    options = ["--ruling", "fail", "--reason", "r"]
    ran = await command("resolve", session, "c1", *options)
    assert (ran.code, "one of 5, 7" in ran.err) == (2, True)
    ran = await command("resolve", session, "c1", "--announced-by", "7", *options)
    assert ran.code == 0
    async with log.session(id=session):
        pass
    [made] = await payloads(log, session, "decision_made")
    assert made["call"] == {"call_id": "c1", "announced_by": 7}


async def both_sent(log: Log, session: str) -> bool:
    return len([each async for each in inbox.received(log.bus, TENANT, session, after=0)]) == 2


async def test_the_first_ruling_wins_and_the_second_is_told(servers: Servers, log: Log) -> None:
    session = await interrupted(log, (None, "c1"))
    async with log.session(id=session):
        pass
    command = flightlog(servers)
    options = ["--reason", "r", "--json", "--wait"]
    async with (
        command.running("resolve", session, "c1", "--ruling", "fail", *options) as one,
        command.running("resolve", session, "c1", "--ruling", "rerun", *options) as other,
    ):
        await until(lambda: both_sent(log, session))
        async with log.session(id=session):
            outcomes = await asyncio.gather(one.ended(), other.ended())
    rulings = [(ran.code, ran.json["recorded"]) for ran in outcomes]
    assert (1, "refused") in rulings
    assert {code for code, _ in rulings} == {0, 1}
