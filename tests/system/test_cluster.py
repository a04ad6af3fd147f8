"""The cluster that the other tests stand on: three nodes, any one of which may die."""

import time

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig

from tests.cluster import SIZE, Cluster

pytestmark = pytest.mark.timeout(60)  # the first election alone takes 4 to 9 s

STREAM = StreamConfig(name="KEPT", subjects=["kept"], num_replicas=SIZE)


async def test_a_replicated_stream_outlives_its_leader(cluster: Cluster) -> None:
    client = await nats.connect(cluster.urls, max_reconnect_attempts=-1, error_cb=_quiet)
    try:
        stream = client.jetstream(timeout=10)
        await stream.add_stream(STREAM)
        await until_stored(client, b"one")
        info = await stream.stream_info("KEPT")
        assert info.cluster
        leader = cluster.node(info.cluster.leader or "")
        leader.kill()
        await until_stored(client, b"two")
        leader.start()
        cluster.wait_until_healthy()
        assert (await stream.get_msg("KEPT", 1)).data == b"one"
    finally:
        await client.close()


async def test_every_node_syncs_before_every_ack(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert node.monitor("varz")["jetstream"]["config"]["sync_always"] is True


async def until_stored(client: Client, text: bytes) -> None:
    """Publish until an ack comes: a stream without a leader, or not yet known here, gives none."""
    deadline = time.monotonic() + 30
    while True:
        try:
            await client.jetstream(timeout=1).publish("kept", text)
        except (NatsError, TimeoutError):
            assert time.monotonic() < deadline, "no ack for 30 s"
        else:
            return


async def _quiet(_: Exception) -> None:
    """The default callback would log the death that the test causes."""
