"""`flightlog up`: servers and projector on one data directory, until it is stopped."""

import json
import signal
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from flightlog import BusUnavailable, Log, connect
from flightlog_recorder.cli.up import default_data
from tests.recorder.command import Command, Running
from tests.recorder.inspected import Client
from tests.recorder.recorded import talk
from tests.scripted import TENANT, until

pytestmark = pytest.mark.timeout(60)  # three processes start, twice, beside other tests


@asynccontextmanager
async def up(data: Path) -> AsyncGenerator[tuple[Running, dict[str, str]]]:
    """The command once it has said where everything is."""
    async with Command({}).running("up", "--data", str(data), "--json") as running:
        yield running, json.loads(await running.line())
        if running.pid:
            await running.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def url(found: dict[str, str]) -> tuple[str, str]:
    return found["FLIGHTLOG_NATS_URL"], found["FLIGHTLOG_REDIS_URL"]


async def projected(log: Log, session: str) -> bool:
    page = await log.sessions(status="completed")
    return session in [row.session for row in page.rows]


async def test_what_was_recorded_is_projected_and_survives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data) as (running, found):
        nats, redis = url(found)
        async with connect(nats=nats, redis=redis, tenant=TENANT, provision=False) as log:
            session = await talk(log)
            await until(lambda: projected(log, session), timeout=30)
        assert await running.stop() == 0
    assert mode(data) == 0o700
    async with up(data) as (_, found):
        assert url(found) == (nats, redis)
        async with connect(nats=nats, redis=redis, tenant=TENANT) as log:
            assert (await log.state(session)).status == "completed"
            assert await projected(log, session)


async def test_projector_and_recorder_run_beside_the_servers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data):
        for name in ("projector", "recorder"):
            await until(partial(serves, data / f"{name}.log"), timeout=30)


async def test_the_inspector_is_served_and_its_address_told(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as (_, found):
        address, _, token = found["inspector"].partition("/#token=")
        client = Client(int(address.rpartition(":")[2]), token)
        assert (await client.get("/api/sessions")).json["sessions"] == []


def serves(log: Path) -> bool:
    return log.exists() and "HTTP on port" in log.read_text()


async def test_a_second_one_on_the_same_data_says_so_and_changes_nothing(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as (_, found):
        ran = await Command({})("up", "--data", str(tmp_path / "data"))
        assert (ran.code, ran.out) == (1, "")
        assert "already running" in ran.err
        nats, redis = url(found)
        async with connect(nats=nats, redis=redis, tenant=TENANT) as log:
            await talk(log)


async def test_the_lines_it_prints_are_what_a_shell_takes(tmp_path: Path) -> None:
    async with Command({}).running("up", "--data", str(tmp_path / "data")) as running:
        lines = [await running.line(), await running.line()]
        assert await running.stop(signal.SIGINT) == 0
    names = [line.partition("=")[0] for line in lines]
    assert names == ["export FLIGHTLOG_NATS_URL", "export FLIGHTLOG_REDIS_URL"]


async def test_nothing_outlives_it_when_it_is_killed(tmp_path: Path) -> None:
    async with up(tmp_path / "data") as (running, found):
        nats, _ = url(found)
        await running.stop(signal.SIGKILL)
        await until(lambda: unreachable(nats))
    async with up(tmp_path / "data"):
        pass


async def unreachable(nats: str) -> bool:
    try:
        async with connect(nats=nats, timeout=0.5):
            return False
    except BusUnavailable:
        return True


async def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("chapter one")
    ran = await Command({})("up", "--data", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert "files that are not ours" in ran.err


def test_data_goes_where_the_desktop_says() -> None:
    assert default_data({"XDG_DATA_HOME": "/data"}) == Path("/data/flightlog")
    assert default_data({}) == Path.home() / ".local/share/flightlog"
