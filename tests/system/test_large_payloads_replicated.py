"""Large payloads on three replicas: the leader of the blobs dies meanwhile, and none is missing."""

import asyncio
import hashlib
import os

import pytest

from flightlog import connect
from flightlog.bus import nats_bus
from flightlog.bus.nats_bus import NatsBus, connect_bare
from flightlog.wire.layout import BLOB_STREAM
from flightlog_recorder.verify import Checker
from tests.cluster import Cluster
from tests.scripted import TENANT

SIZE = 1 << 20  # bytes of each result: three chunks
RESULTS = 12

pytestmark = pytest.mark.timeout(120)  # an election takes 4 to 9 s, and a node comes back


async def leader_of(cluster: Cluster, stream: str) -> str:
    async with await connect_bare(cluster.url) as bare:
        return str((await bare.api(f"STREAM.INFO.{stream}"))["cluster"]["leader"])


async def test_the_leader_of_the_blobs_may_die_while_results_come(cluster: Cluster) -> None:
    async with await connect_bare(cluster.url) as bare:
        await nats_bus.create_streams(bare, replicas=3)
    doomed = cluster.node(await leader_of(cluster, BLOB_STREAM))
    results = [os.urandom(SIZE // 2).hex() for _ in range(RESULTS)]
    async with connect(nats=cluster.url, tenant=TENANT) as log, log.session(key="k") as s:
        calls = [
            s.tool_call("t", {"n": n}, call_id=f"c{n}", run=lambda n: results[n])
            for n in range(RESULTS)
        ]
        first, *others = [asyncio.ensure_future(call) for call in calls]
        await first
        doomed.kill()
        for each, wanted in zip(await asyncio.gather(first, *others), results, strict=True):
            assert each.output == wanted
    cluster.bring_back(doomed)
    async with connect(nats=cluster.url, tenant=TENANT) as log:
        async with log.session(key="k") as again:
            for n, wanted in enumerate(results):
                result = await again.tool_call("t", {"n": n}, call_id=f"c{n}", run=fail)
                assert digest(result.output) == digest(wanted)
        assert isinstance(log.bus, NatsBus)
        found = await Checker(log.bus, None, TENANT).check(s.id)
        assert found.outcome == "ok", found


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def fail(n: int) -> None:
    pytest.fail(f"call {n} has a recorded result")
