"""`flightlog ls`: the catalog, by status, label, key and page."""

from collections.abc import AsyncIterator

import pytest

from flightlog import Log, connect
from flightlog_recorder.embedded import Servers
from tests.recorder.command import flightlog
from tests.recorder.recorded import project, raise_floor, talk
from tests.scripted import TENANT

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def listed(log: Log, *keys: str) -> list[str]:
    """Sessions with these keys and a label of the same text, oldest first."""
    sessions = [await talk(log, key=key, labels={"job": key}) for key in keys]
    for session in sessions:
        await project(log, session)
    return sessions


async def test_sessions_come_latest_activity_first(servers: Servers, log: Log) -> None:
    sessions = await listed(log, "a", "b", "c")
    found = (await flightlog(servers)("ls", "--json")).json
    assert [row["session"] for row in found["sessions"]] == sessions[::-1]
    assert (found["after"], found["sessions"][0]["key"]) == (None, "c")


async def test_status_label_and_key_narrow_the_listing(servers: Servers, log: Log) -> None:
    first, second = await listed(log, "a", "b")
    command = flightlog(servers)
    for options, wanted in (
        (["--status", "completed"], [second, first]),
        (["--status", "running"], []),
        (["--label", "job=a"], [first]),
        (["--label", "job=a", "--label", "x=y"], []),
        (["--key", "b"], [second]),
        (["--waiting", "decide"], []),
    ):
        found = (await command("ls", "--json", *options)).json
        assert (options, [row["session"] for row in found["sessions"]]) == (options, wanted)


async def test_a_listing_is_continued_where_it_ended(servers: Servers, log: Log) -> None:
    sessions = await listed(log, "a", "b", "c")
    command = flightlog(servers)
    first = (await command("ls", "--json", "--limit", "2")).json
    rest = (await command("ls", "--json", "--after", first["after"])).json
    found = [row["session"] for row in first["sessions"] + rest["sessions"]]
    assert found == sessions[::-1]


async def test_a_catalog_that_is_being_rebuilt_says_so(servers: Servers, log: Log) -> None:
    [session] = await listed(log, "a")
    command = flightlog(servers)
    ran = await command("ls")
    assert session in ran.out
    assert "is being rebuilt" in ran.err
    await raise_floor(log, session, 1)
    ran = await command("ls")
    assert (ran.code, ran.err) == (0, "")


async def test_a_pipe_gets_whole_cells_and_no_colours(servers: Servers, log: Log) -> None:
    key = "k" * 200 + "\x1b[31m\n"
    [session] = await listed(log, key)
    ran = await flightlog(servers)("ls")
    header, row = ran.out.splitlines()
    assert header.split()[:2] == ["session", "status"]
    assert row.split()[:2] == [session, "completed"]
    assert "k" * 200 in row
    assert "\x1b" not in ran.out


async def test_an_empty_catalog_is_no_problem(servers: Servers, log: Log) -> None:
    await raise_floor(log, "sess_a", 0)
    ran = await flightlog(servers)("ls")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "",
        f"flightlog: tenant {log.tenant} has no sessions yet\n",
    )


async def test_the_children_of_a_session_are_listed_by_their_parent(
    servers: Servers, log: Log
) -> None:
    async with log.session(key="parent") as parent, parent.child(name="helper") as child:
        await child.user_message("hello")
    for session in (parent.id, child.id):
        await project(log, session)
    found = (await flightlog(servers)("ls", "--json", "--parent", parent.id)).json
    assert [row["session"] for row in found["sessions"]] == [child.id]
