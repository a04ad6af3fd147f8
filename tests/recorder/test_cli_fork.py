"""`flightlog fork`: prints the new id, says what is not undone, and repeats itself by key."""

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from flightlog import Log, NoSuchSession, connect
from flightlog_recorder.embedded import Servers
from tests.recorder.command import Command, flightlog
from tests.recorder.recorded import talk
from tests.scripted import TENANT, until

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


async def test_the_new_id_is_printed_and_what_is_not_undone_is_told(
    servers: Servers, log: Log
) -> None:
    source = await talk(log)
    ran = await flightlog(servers)("fork", source, "--at", "4", "--label", "why=test")
    assert ran.code == 0
    state = await log.state(ran.out.strip())
    assert (state.seq, state.labels) == (5, {"why": "test"})
    assert f"not undone: 1 call (add x1) of {source} after event 4" in ran.err
    whole = await flightlog(servers)("fork", source, "--json")
    assert whole.json["not_undone"] == {}


async def test_the_same_key_prints_the_same_fork_and_a_wrong_event_is_named(
    servers: Servers, log: Log
) -> None:
    source = await talk(log, key="nightly")
    first = await flightlog(servers)("fork", "nightly", "--key", "mine", "--at", "3")
    again = await flightlog(servers)("fork", source, "--key", "mine", "--at", "3")
    assert first.out == again.out
    wrong = await flightlog(servers)("fork", source, "--at", "99")
    assert (wrong.code, wrong.out) == (2, "")
    assert "there is no event 99" in wrong.err


async def test_a_fork_that_is_killed_in_the_middle_is_not_seen_and_can_be_run_again(
    servers: Servers, log: Log
) -> None:
    async with log.session(key="long") as session:
        await asyncio.gather(
            *(session.append("note", {"n": n, "x": "y" * 4_000}) for n in range(5_000))
        )
    command: Command = flightlog(servers)
    async with command.running("fork", "long", "--key", "mine") as running:
        fork = await until(lambda: half_made(log), timeout=30)
        await running.stop(signal.SIGKILL)
    with pytest.raises(NoSuchSession):
        await log.state(fork)
    ran = await flightlog(servers)("fork", "long", "--key", "mine")
    assert (await log.state(ran.out.strip())).counts["note"] == 5_000


async def half_made(log: Log) -> str | None:
    """The fork's id once some of its events are stored."""
    found = await log.look_up("mine")
    if found is None:
        return None
    page = await log.bus.page(
        log.bus.layout.stream_of(found), f"flightlog.v1.*.{TENANT}.{found}.base", 1
    )
    return found if page.messages else None
