"""Keys: one id for each, whoever asks first."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus, create_streams
from flightlog.bus.protocol import Outgoing
from flightlog.wire import subject as names
from flightlog.writing import keys
from tests.cluster import Cluster
from tests.scripted import TENANT


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    bus = await connect_bus(nats_url)
    yield bus
    await bus.close()


async def test_a_key_stands_for_one_id_for_ever(bus: NatsBus) -> None:
    first = await keys.claim(bus, TENANT, "nightly/1")
    assert first.id.startswith("sess_")
    assert await keys.claim(bus, TENANT, "nightly/1") == first
    assert await keys.look_up(bus, TENANT, "nightly/1") == first
    assert await keys.look_up(bus, TENANT, "nightly/2") is None


async def test_twenty_racing_claims_get_one_id(nats_url: str, bus: NatsBus) -> None:
    others = await asyncio.gather(*(connect_bus(nats_url) for _ in range(3)))
    claims = [keys.claim(each, TENANT, "k") for each in (bus, *others) for _ in range(5)]
    entries = await asyncio.gather(*claims)
    assert len({entry.id for entry in entries}) == 1
    assert len({entry.sequence for entry in entries}) == 1
    for each in others:
        await each.close()


@pytest.mark.timeout(90)  # a cluster takes seconds to start
async def test_claims_that_race_on_a_cluster_get_one_id(cluster: Cluster) -> None:
    async with await connect_bare(cluster.url) as bus:
        await create_streams(bus, replicas=3)
    buses = [await connect_bus(url) for url in cluster.urls]
    for n in range(10):
        entries = await asyncio.gather(
            *(keys.claim(bus, TENANT, f"k{n}") for bus in buses for _ in range(7))
        )
        assert len({entry.id for entry in entries}) == 1
    for bus in buses:
        await bus.close()


async def test_any_text_is_a_key_and_every_text_another(bus: NatsBus) -> None:
    texts = [".", "*", ">", ":", "a@b", " ", "\n", "ümläut", "x" * 300, "", "a/b", "\0", "K", "k"]
    entries = [await keys.claim(bus, TENANT, text) for text in texts]
    assert len({entry.id for entry in entries}) == len(texts)
    assert [await keys.look_up(bus, TENANT, text) for text in texts] == entries


async def test_tenants_do_not_share_keys(bus: NatsBus) -> None:
    mine, theirs = await keys.claim(bus, "a", "k"), await keys.claim(bus, "b", "k")
    assert mine.id != theirs.id


async def test_the_entry_says_what_made_it_and_keeps_a_given_id(bus: NatsBus) -> None:
    made = await keys.claim(bus, TENANT, "k", made_by="import", id="sess_given")
    assert (made.id, made.made_by) == ("sess_given", "import")
    assert await keys.claim(bus, TENANT, "k") == made


async def test_a_released_key_mints_anew(bus: NatsBus) -> None:
    first = await keys.claim(bus, TENANT, "k")
    assert await keys.release(bus, first)
    assert await keys.look_up(bus, TENANT, "k") is None
    second = await keys.claim(bus, TENANT, "k")
    assert second.id != first.id
    assert not await keys.release(bus, first)
    assert await keys.look_up(bus, TENANT, "k") == second


async def test_garbage_under_a_key_is_replaced_once(bus: NatsBus) -> None:
    subject = names.key_subject(TENANT, "k")
    await bus.append(subject, [Outgoing(b"\xff{}", {})], expected=0, timeout=5)
    assert await keys.look_up(bus, TENANT, "k") is None
    entries = await asyncio.gather(*(keys.claim(bus, TENANT, "k") for _ in range(5)))
    assert len({entry.id for entry in entries}) == 1


async def test_who_knows_only_the_session_finds_its_keys(bus: NatsBus) -> None:
    wanted = await keys.claim(bus, TENANT, "k")
    other = await keys.claim(bus, TENANT, "l", id=wanted.id)
    gone = await keys.claim(bus, TENANT, "m", id=wanted.id)
    await keys.release(bus, gone)
    await keys.claim(bus, TENANT, "n")
    await keys.claim(bus, "another", "k", id=wanted.id)
    assert await keys.held_by(bus, TENANT, wanted.id) == [wanted, other]
