"""Large payloads from one process to the next, in bounded memory."""

import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys

import pytest

from flightlog import CallModel, RunTools, connect
from flightlog_recorder.embedded import Servers
from tests.recorder.recorded import project
from tests.scripted import TENANT, Model, asks, says

RESULT = "".join(random.Random(1).choices('ab"\\\n☃💡', k=6_500_000))  # 12 MB
IMAGE = random.Random(2).randbytes(480_500).hex()  # 961 kB in one block

RESUMED = """
import asyncio, hashlib, json, sys
import flightlog

async def main(nats, redis, tenant):
    async with (
        flightlog.connect(nats=nats, redis=redis, tenant=tenant) as log,
        log.session(key="k") as s,
    ):
        said = json.dumps(s.state.messages(), ensure_ascii=False).encode()
        print(json.dumps([s.resumed_from[0], hashlib.sha256(said).hexdigest()]))

asyncio.run(main(*sys.argv[1:]))
"""
ATTACHED = """
import asyncio, hashlib, sys
import flightlog

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

async def parts(count):
    for n in range(count):
        yield hashlib.sha256(str(n).encode()).digest() * (1 << 15)  # 1 MiB each

async def main(nats, count):
    async with flightlog.connect(nats=nats) as log, log.session() as s:
        before = peak()
        blob = await s.attach(parts(count))
        await s.append("note", {"file": blob})
        size = 0
        async for piece in log.blob(s.id, blob):
            size += len(piece)
        assert size == blob.size == count << 20
        print(peak() - before)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def ran(code: str, *arguments: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ},
    )
    return done.stdout.decode()


@pytest.mark.timeout(60)  # a process is started, 12 MB are stored and read
async def test_a_large_result_and_an_image_are_resumed_elsewhere_from_a_snapshot(
    servers: Servers,
) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    model = Model(asks(("t", "cat", {"path": "x"})), says("I see"))
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message([{"type": "image", "source": image}])
            await s.model_call({"messages": s.state.messages()}, call=model)
            step = s.state.next
            assert isinstance(step, RunTools)
            result = await s.tool_call(step.calls[0], run=lambda path: path and RESULT)
            assert result.output == RESULT
            assert isinstance(s.state.next, CallModel)
            await s.model_call({"messages": s.state.messages()}, call=model)
            said = s.state.messages()
        assert said[0]["content"][0]["source"] == image
        assert said[2]["content"][0]["content"] == RESULT
        async for event in log.read(s.id):
            assert len(event.body) < 2_000
        stored = await project(log, s.id)
        digest = hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()
        resumed = await ran(RESUMED, servers.nats_url, str(servers.redis_url), TENANT)
        assert json.loads(resumed) == [stored.seq, digest]


@pytest.mark.timeout(120)  # 64 MiB through a real broker, twice
async def test_a_stream_passes_in_bounded_memory(nats_url: str) -> None:
    grown = int(await ran(ATTACHED, nats_url, "64"))
    assert grown < 24 << 10  # kB: chunks under way and what the client buffers, not the stream


@pytest.mark.soak
@pytest.mark.timeout(900)  # 1 GiB through a real broker, twice
async def test_a_gibibyte_passes_in_the_same_memory(nats_url: str) -> None:
    grown = int(await ran(ATTACHED, nats_url, "1024"))
    assert grown < 24 << 10
