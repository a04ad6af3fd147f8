"""A parent that is killed finds its children again: one for each call, in one tree."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import flightlog
from flightlog import Log
from flightlog.cache.catalog import Row
from flightlog.usage import Usage
from flightlog_recorder.demo.stage import Stage
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT, chain_is_whole, stored, until
from tests.system.loops import Loop, key_of

# Each place costs two processes of about a second on a machine that is shared.
pytestmark = pytest.mark.timeout(150)

KINDS = ("left", "right")
ACKS = 37  # of a run that nobody disturbs, children included
PLACES = ["4", "6", "8", "left_0:look_0", "17", "30", "33"]


@pytest.fixture
async def catalog(servers: Servers, tmp_path: Path) -> AsyncIterator[Log]:
    """A log whose catalog a projector keeps."""
    stage = Stage(tmp_path, servers.environment())
    stage.projector()
    try:
        async with flightlog.connect(
            nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT
        ) as log:
            yield log
    finally:
        stage.close()


async def children(log: Log, session: str) -> list[Row]:
    """The catalog's rows of the session's children, once all have ended."""

    async def ended() -> list[Row]:
        rows = (await log.sessions(parent=session)).rows
        return rows if len(rows) == 2 and {r.status for r in rows} == {"completed"} else []

    found: list[Row] = await until(ended, timeout=30)
    return found


async def test_a_resumed_parent_finds_its_children_and_the_catalog_lists_the_tree(
    servers: Servers, tmp_path: Path, catalog: Log
) -> None:
    await assert_tree(Loop("parent", servers, tmp_path, parallel=True), catalog, PLACES)


@pytest.mark.soak
@pytest.mark.timeout(600)  # seventy processes
async def test_a_resumed_parent_finds_its_children_whatever_ack_was_the_last(
    servers: Servers, tmp_path: Path, catalog: Log
) -> None:
    places = [str(acks) for acks in range(1, ACKS)]
    await assert_tree(Loop("parent", servers, tmp_path, parallel=True), catalog, places)


async def assert_tree(loop: Loop, catalog: Log, places: list[str]) -> None:
    await loop.same_wherever_it_dies(places)
    for place in places:
        session = await catalog.look_up(key_of(place))
        assert session is not None
        rows = await children(catalog, session)
        assert {row.lineage["parent"]["call_id"] for row in rows} == set(KINDS)
        assert {row.lineage["parent"]["name"] for row in rows} == {"researcher"}
        for row in rows:
            assert chain_is_whole(await stored(catalog, row.session))
            assert (await catalog.sessions(parent=row.session)).rows == []
        assert await catalog.usage(session) == Usage(80, 40)  # 2 answers of its own, 3 of each
