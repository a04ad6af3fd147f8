"""Harness and subscriber do their work by their permissions on three nodes and eight streams."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flightlog import Log, LogCorrupt, connect
from flightlog.bus.nats_bus import connect_bare
from flightlog.wire import subject as names
from flightlog.writing import keys, seal
from flightlog_recorder.access import accounts
from tests import roled
from tests.cluster import Cluster
from tests.handmade import chain
from tests.projector.conftest import spawn
from tests.recorder.recorded import talk, write
from tests.scripted import until
from tests.system.working import TENANT, begin, damage, look_back, resume

FLEET = accounts.of_tenants("fleet", [TENANT], subscribers=["mailer"], streams=8)
HARNESS, SUBSCRIBER, RECORDER = "acme-harness", "acme-subscriber-mailer", "fleet-recorder"

pytestmark = pytest.mark.timeout(120)  # a cluster starts, and elects


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[Cluster]:
    with roled.on_cluster(tmp_path, FLEET) as nodes:
        yield nodes


@asynccontextmanager
async def log_of(cluster: Cluster, user: str) -> AsyncGenerator[Log]:
    where = roled.of_cluster(cluster, user)
    async with connect(nats=where, tenant=TENANT, provision=False) as log:
        assert len(log.bus.layout.streams) == 8
        yield log


async def make_streams(cluster: Cluster) -> None:
    await roled.make_streams(cluster, "fleet-boss", streams=8)


def refused(cluster: Cluster, user: str) -> set[str]:
    """What the nodes refused to the user."""
    said = [roled.refusals(node.log, user) for node in cluster.nodes]
    return {subject for each in said for _, subject in each}


async def test_a_harness(cluster: Cluster) -> None:
    await make_streams(cluster)
    async with log_of(cluster, HARNESS) as log, log_of(cluster, "fleet-operator") as operator:
        await begin(log)
        session = await resume(log, operator)
        await look_back(log, session)
        with pytest.raises(LogCorrupt):
            await log.state(await damage(log))
        for number in range(20):  # on every stream, as likely as not
            await talk(log, key=f"job/{number}")
    assert refused(cluster, HARNESS) == set()


async def test_a_subscriber_through_the_death_of_a_leader(cluster: Cluster) -> None:
    await make_streams(cluster)
    async with (
        log_of(cluster, HARNESS) as harness,
        log_of(cluster, SUBSCRIBER) as log,
        log.subscribe("mailer", types=["user_message"]) as mailer,
        harness.session(key="job") as session,
    ):
        coming, heard = aiter(mailer), set[str]()
        await session.user_message("before")
        delivery = await anext(coming)
        await delivery.ack()
        heard.add(delivery.event.payload["content"])
        cluster.node(await leader(cluster, session.id)).kill()
        await session.user_message("after")
        while "after" not in heard:
            delivery = await anext(coming)
            await delivery.ack()
            heard.add(delivery.event.payload["content"])
    assert heard == {"before", "after"}
    assert (refused(cluster, HARNESS), refused(cluster, SUBSCRIBER)) == (set(), set())


async def leader(cluster: Cluster, session: str) -> str:
    """The node that leads the session's stream."""
    async with log_of(cluster, "fleet-boss") as log:
        stream = log.bus.layout.stream_of(session)
    async with await connect_bare(roled.of_cluster(cluster, "fleet-boss")) as bus:
        return str((await bus.api(f"STREAM.INFO.{stream}"))["cluster"]["leader"])


async def test_a_keyed_fork_after_one_that_was_left_halfway(cluster: Cluster) -> None:
    """Its agent may not purge what the other one left: the recorder does."""
    await make_streams(cluster)
    async with log_of(cluster, HARNESS) as log:
        session = await talk(log)
        left = await keys.claim(log.bus, TENANT, "fork", made_by="fork")
        await write(log, left.id, chain(2, session=left.id), part="base")
        fork = await log.fork(session, at=3, key="fork")
        assert fork != left.id
        assert await log.fork(session, at=3, key="fork") == fork
        assert (await seal.look(log.bus, TENANT, left.id)).standing == "abandoned"
        stream, base = log.bus.layout.stream_of(left.id), names.log_subject(TENANT, left.id, "base")
        assert refused(cluster, HARNESS) == {f"$JS.API.STREAM.PURGE.{stream}"}

        async def is_purged() -> bool:
            return len((await log.bus.page(stream, base, 1)).messages) == 1

        recorder = await spawn(
            {
                "FLIGHTLOG_NATS_URL": cluster.url,
                "FLIGHTLOG_NATS_USER": RECORDER,
                "FLIGHTLOG_NATS_PASSWORD": roled.PASSWORD,
                "FLIGHTLOG_HTTP_PORT": "0",
            },
            module="flightlog_recorder.service",
        )
        try:
            await until(is_purged, timeout=30)
        finally:
            recorder.process.terminate()
            await recorder.process.wait()
    assert refused(cluster, RECORDER) == set()
