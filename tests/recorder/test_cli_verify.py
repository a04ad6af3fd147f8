"""`flightlog verify`: one line a session, a summary, and an exit code."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from flightlog import Log, connect
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Servers
from tests.handmade import chain
from tests.recorder.command import flightlog
from tests.recorder.recorded import project, row, talk, write
from tests.scripted import TENANT

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def damaged(log: Log) -> str:
    session = names.mint()
    events = chain(5, session=session)
    await write(log, session, [*events[:2], *events[3:]])
    return session


async def test_a_session_that_is_fine_exits_0(servers: Servers, log: Log) -> None:
    session = await talk(log, key="k")
    folded = await project(log, session)
    ran = await flightlog(servers)("verify", "k")
    assert ran.code == 0
    first, summary = ran.out.splitlines()
    assert first.split()[:2] == ["ok", session]
    assert (folded.digest or "")[:12] in first
    assert summary == f"1 session, {folded.seq} events: no problem"


async def test_a_damaged_session_exits_1_and_stops_nobody(servers: Servers, log: Log) -> None:
    fine = [await talk(log) for _ in range(3)]
    bad = await damaged(log)
    command = flightlog(servers)
    ran = await command("verify", "--all", "--json")
    *verdicts, summary = ran.lines
    assert ran.code == 1
    assert {each["session"]: each["outcome"] for each in verdicts} == {
        **dict.fromkeys(fine, "ok"),
        bad: "problem",
    }
    assert summary["summary"]["sessions"] == 4
    assert summary["summary"]["problem"] == 1
    text = await command("verify", "--all")
    assert text.code == 1
    assert "4 sessions" in text.out.splitlines()[-1]
    assert "is damaged after seq 2" in text.out


async def test_a_row_without_a_log_is_a_problem(servers: Servers, log: Log) -> None:
    assert log.store is not None
    session = await talk(log)
    folded = await project(log, session)
    await log.store.save_row(replace(row(session, folded), session="sess_gone"))
    ran = await flightlog(servers)("verify", "--all", "--json")
    assert ran.code == 1
    assert [each["session"] for each in ran.lines if each.get("outcome") == "problem"] == [
        "sess_gone"
    ]


async def test_without_redis_it_says_what_it_did_not_verify(servers: Servers, log: Log) -> None:
    session = await talk(log)
    ran = await flightlog(servers, redis=False)("verify", session)
    assert ran.code == 0
    assert "the logs alone are verified" in ran.err


async def test_a_tenant_without_sessions_is_fine(servers: Servers, log: Log) -> None:
    assert log.tenant == TENANT
    ran = await flightlog(servers)("verify", "--all")
    assert (ran.code, ran.out) == (0, "0 sessions, 0 events: no problem\n")
