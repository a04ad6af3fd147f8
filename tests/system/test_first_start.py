"""A whole fleet that starts at once on an empty broker: one set of streams, and all work."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from flightlog import connect
from flightlog.bus.nats_bus import connect_bare
from flightlog.bus.protocol import Message
from flightlog.wire.layout import log_configs, side_configs
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT, chain_is_whole, stored, until
from tests.system.processes import Workshop

FLEET = 100
STREAM_ACTIONS = "$JS.EVENT.ADVISORY.STREAM.*.*"


@pytest.mark.timeout(120)  # a hundred processes share the two cores of a busy machine
async def test_a_hundred_processes_at_once_on_an_empty_broker_provision_it_once_and_all_work(
    servers: Servers, workshop: Workshop
) -> None:
    done: list[tuple[str, str]] = []

    async def heard(message: Message) -> None:
        *_, action, stream = message.subject.split(".")
        done.append((action, stream))

    async with await connect_bare(servers.nats_url) as bus:
        await bus.listen(STREAM_ACTIONS, heard)
        fleet = workshop.start("crowd.py", str(FLEET))
        assert await asyncio.to_thread(fleet.wait, 100), "they did not end"
        said = [json.loads(line) for line in workshop.words.splitlines() if line.startswith("{")]
        assert [each for each in said if "failed" in each] == []
        assert len(said) == FLEET, workshop.words
        wanted = [config["name"] for config in log_configs(1) + side_configs()]
        await until(lambda: len(done) >= len(wanted))
        assert Counter(done) == Counter(("CREATED", name) for name in wanted)
    await assert_all_worked(servers, said)


async def assert_all_worked(servers: Servers, said: list[dict[str, Any]]) -> None:
    """Each has a session of its own, all have one in common, and what was acked is there."""
    assert len({each["own"] for each in said}) == FLEET
    assert len({each["shared"] for each in said}) == 1
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        for session in {session for each in said for session in each["acked"]}:
            events = await stored(log, session)
            acked = {tuple(ack) for each in said for ack in each["acked"].get(session, [])}
            assert chain_is_whole(events)
            assert acked <= {(event.seq, event.digest) for event in events}
        async with log.session(key="shared") as shared:
            assert shared.id == said[0]["shared"]
            await shared.end()
