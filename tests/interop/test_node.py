"""A harness on Node, written from docs/wire.md alone, shares sessions with ours."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from flightlog import CallModel, Ended, Log, RunTools, connect
from flightlog.cache.catalog import Row
from flightlog_recorder.embedded import Servers
from tests.recorder.command import flightlog
from tests.scripted import TENANT, Model, owed, says, types, until

HERE = Path(__file__).parent
INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")
FENCED = 4
WHOLE = [
    "session_started",
    "user_message",
    "model_request",
    "model_response",
    "tool_call",
    "tool_result",
    "model_request",
    "model_response",
    "session_ended",
]

pytestmark = pytest.mark.timeout(60)  # each starts processes, and npm may have to install first

KILLED = """
import asyncio, os, signal, sys
import flightlog

CALL = {"type": "tool_use", "id": "c9", "name": "weigh", "input": {"what": "the letter"}}

async def main(url):
    async with flightlog.connect(nats=url, tenant="acme") as log, log.session(key="job") as s:
        await s.user_message("How heavy is the letter?")
        answer = {"role": "assistant", "content": [CALL], "stop_reason": "tool_use"}
        request = {"model": "scripted", "max_tokens": 9, "messages": s.state.messages()}
        await s.model_call(request, call=lambda **_: answer)
        async with s.calling(s.state.next.calls[0], on_resume="rerun"):
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(sys.argv[1]))
"""


class Agent:
    """The Node harness as a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return found

    async def ended(self, say: bytes = b"") -> int:
        out, err = await self._process.communicate(say)
        self.runs = [json.loads(line) for line in out.splitlines()]
        self.said = err.decode()
        assert self._process.returncode is not None
        return self._process.returncode


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness with its packages, in a folder of its own."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed: the harness on Node is not tested")
    folder = tmp_path_factory.mktemp("node")
    for source in [*HERE.glob("*.mjs"), HERE / "package.json"]:
        shutil.copy(source, folder)
    done = subprocess.run(INSTALL, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("npm cannot install the official @nats-io packages here")
    return folder


@asynccontextmanager
async def agent(node: Path, servers: Servers, *options: str) -> AsyncGenerator[Agent]:
    pipe = asyncio.subprocess.PIPE
    command = ("node", str(node / "agent.mjs"), servers.nats_url, TENANT, "job", *options)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield Agent(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    url, redis = servers.nats_url, servers.redis_url
    async with connect(nats=url, redis=redis, tenant=TENANT, provision=True) as connected:
        yield connected


@asynccontextmanager
async def projector(servers: Servers) -> AsyncGenerator[None]:
    command = (sys.executable, "-m", "flightlog_projector")
    environment = os.environ | servers.environment() | {"FLIGHTLOG_HTTP_PORT": "0"}
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def rows(log: Log) -> Sequence[Row]:
    return (await log.sessions()).rows


async def session_of(log: Log) -> str:
    found = await log.look_up("job")
    assert found is not None
    return found


async def test_a_session_that_node_recorded_is_projected_verified_and_read_here(
    node: Path, servers: Servers, log: Log
) -> None:
    async with agent(node, servers) as harness:
        assert await harness.ended() == 0, harness.said
    session = await session_of(log)
    assert await types(log, session) == WHOLE
    run = flightlog(servers)
    assert (await run("verify", session)).code == 0
    for request in ("3", "7"):
        assert (await run("replay", session, "--request", request)).code == 0
    state = await log.state(session)
    assert state.messages()[-1]["content"] == [{"type": "text", "text": "It weighs 12 kg — done ✓"}]
    assert (state.usage.input_tokens, state.usage.output_tokens) == (14, 6)
    async with projector(servers):
        row = (await until(lambda: rows(log)))[0]
    assert (row.session, row.status, row.labels) == (session, "completed", {"language": "node"})


async def test_node_resumes_a_session_whose_python_process_was_killed(
    node: Path, servers: Servers, log: Log, tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = await asyncio.create_subprocess_exec(sys.executable, str(script), servers.nats_url)
    assert await done.wait() == -signal.SIGKILL
    async with agent(node, servers) as harness:
        assert await harness.ended() == 0, harness.said
    assert harness.runs == [{"ran": "c9", "attempt": 2}]
    session = await session_of(log)
    assert (await flightlog(servers)("verify", session)).code == 0
    async with log.session(key="job") as s:
        assert isinstance(owed(s), Ended)
        assert s.state.messages()[2]["content"][0]["content"] == "the letter: 12 kg"


async def test_python_resumes_a_session_whose_node_process_was_killed(
    node: Path, servers: Servers, log: Log
) -> None:
    async with agent(node, servers, "--die-after", "tool_call") as harness:
        assert await harness.ended() == -signal.SIGKILL
    assert harness.runs == []
    async with log.session(key="job") as s:
        step = owed(s)
        assert isinstance(step, RunTools)
        assert [(call.name, call.arguments) for call in step.calls] == [
            ("weigh", {"what": "the parcel"})
        ]
        await s.tool_call(step.calls[0], run=lambda what: f"{what}: 3 kg")
        assert isinstance(owed(s), CallModel)
        request = {"model": "scripted", "max_tokens": 64, "messages": s.state.messages()}
        await s.model_call(request, call=Model(says("3 kg")))
        await s.end()
    assert (await flightlog(servers)("verify", s.id)).code == 0


async def test_node_is_told_that_a_python_process_took_its_session(
    node: Path, servers: Servers, log: Log
) -> None:
    async with agent(node, servers, "--hold-after", "tool_call") as harness:
        assert await harness.line() == {"held": 5}
        async with log.session(key="job") as s:
            assert await harness.ended(b"go on\n") == FENCED
            assert "another writer" in harness.said
            assert isinstance(owed(s), RunTools)
    assert (await flightlog(servers)("verify", s.id)).code == 0
