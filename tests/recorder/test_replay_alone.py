"""A replay speaks to NATS and Redis and nobody else, starts nothing and writes no log."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from flightlog import Log, connect
from flightlog_recorder.embedded import Servers
from tests.recorder.command import Command
from tests.recorder.recorded import project, talk
from tests.scripted import TENANT, stored

pytestmark = pytest.mark.timeout(90)  # every command is a process of its own

WATCH = """
import os, sys
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
trace = open(os.environ["TRACE"], "a", buffering=1)
def watch(event, found):
    if event == "socket.connect":
        trace.write(f"port {found[1][1] if isinstance(found[1], tuple) else found[1]}\\n")
    elif event in STARTS:
        trace.write(f"start {event} {found[0]}\\n")
sys.addaudithook(watch)
"""
WAYS = [
    ("--until", "4"),
    ("--diff", "5..6"),
    ("--from", "1", "--grep", "1"),
    ("--request", "7"),
    ("--check", "session"),
]


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


class Watched:
    """Runs `flightlog` and says whom it spoke to and what it started, as the interpreter tells."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        (folder / "sitecustomize.py").write_text(WATCH)
        self._trace = folder / "trace"
        self._trace.touch()
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        told = {"PYTHONPATH": path, "TRACE": str(self._trace)}
        self._run = Command({**environ, **told})

    async def __call__(self, *arguments: str) -> set[str]:
        """What it did outside, each thing once."""
        ran = await self._run(*arguments)
        assert ran.code == 0, ran.err
        found = set(self._trace.read_text().splitlines())
        self._trace.write_text("")
        return found


async def test_a_session_is_replayed_by_speaking_to_nats_and_redis_alone(
    servers: Servers, log: Log, tmp_path: Path
) -> None:
    session = await talk(log)
    await project(log, session)
    before = [event.digest for event in await stored(log, session)]
    run = Watched(tmp_path, {**servers.environment(), "FLIGHTLOG_TENANT": TENANT})
    ports = {f"port {urlsplit(url).port}" for url in (servers.nats_url, servers.redis_url)}
    for way in WAYS:
        assert await run("replay", session, *way) == ports
    assert await run("replay", session, "--compare", session) == ports
    assert [event.digest for event in await stored(log, session)] == before


async def test_a_file_is_replayed_by_speaking_to_nobody(log: Log, tmp_path: Path) -> None:
    session = await talk(log)
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(event.body + b"\n" for event in await stored(log, session)))
    run = Watched(tmp_path, {})
    for way in (*WAYS, ("--compare", str(path))):
        assert await run("replay", "--file", str(path), *way) == set()
