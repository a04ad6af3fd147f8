"""What the design rests on, asked of three replicas: where they answer as one node, and where not.

DESIGN sections 4 and 5: exact expectations hold, refusals may lack their number, direct gets lag.
"""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError

from tests.cluster import SIZE, Cluster
from tests.contract.broker import EXPECTED, OTHER, STREAM, SUBJECT, Broker, refused

# Three servers start and elect once; deletions and creations of a stream elect again.
pytestmark = pytest.mark.timeout(90)

IN_FLIGHT = 10164  # another message of this subject is on its way: it may be stored yet
PATIENCE = 30.0  # seconds for an election


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """One cluster for this module: only streams are made anew."""
    with tempfile.TemporaryDirectory(prefix="flightlog-cluster-") as home:
        nodes = Cluster(Path(home))
        try:
            nodes.start()
            yield nodes
        finally:
            nodes.kill()


@pytest.fixture
async def broker(shared_cluster: Cluster) -> AsyncIterator[Broker]:
    """A fresh stream on all three, with a leader."""
    client = await nats.connect(shared_cluster.urls, max_reconnect_attempts=-1, error_cb=_quiet)
    broker = Broker(client)
    await broker.make(num_replicas=SIZE)
    await led(broker)
    yield broker
    await broker.api(f"STREAM.DELETE.{STREAM}", {})
    await client.close()


async def led(broker: Broker) -> str:
    """The stream's leader, once it has one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(NatsError, TimeoutError):
            info = await broker.api(f"STREAM.INFO.{STREAM}", {})
            if leader := info.get("cluster", {}).get("leader"):
                return str(leader)
        await asyncio.sleep(0.05)
    raise AssertionError(f"no leader within {PATIENCE} s")


async def seen(broker: Broker, count: int, subject: str = SUBJECT) -> list[bytes]:
    """The subject's bodies, once a replica shows so many."""
    until = time.monotonic() + PATIENCE
    while len(found := await broker.bodies(subject)) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} messages in sight"
    return found


async def test_an_expectation_holds_for_exactly_its_subject(broker: Broker) -> None:
    assert (await broker.expect(0))["seq"] == 1
    assert (await broker.expect(0, OTHER))["seq"] == 2
    assert (await broker.expect(1))["seq"] == 3
    for wrong in (0, 1, 99):
        assert refused(await broker.expect(wrong), 10071) == "wrong last sequence: 3"
    assert await seen(broker, 2) == [b"x", b"x"]


async def test_of_writers_that_race_one_is_stored_and_no_refusal_names_less_than_was_expected(
    broker: Broker,
) -> None:
    last, stored = 0, 0
    for _ in range(30):
        answers = await asyncio.gather(*(broker.expect(last, body=b"%d" % n) for n in range(8)))
        acked = [answer["seq"] for answer in answers if "error" not in answer]
        assert len(acked) <= 1
        for error in (answer["error"] for answer in answers if "error" in answer):
            assert error["err_code"] in (10071, IN_FLIGHT), error
            number = error["description"].rpartition(": ")[2]
            assert not number.isdigit() or int(number) >= last
        stored += len(acked)
        last = max(acked, default=last)
    assert len(await seen(broker, stored)) == stored > 0


async def test_pipelined_expectations_of_one_subject_are_refused_but_the_first(
    broker: Broker,
) -> None:
    """Guessing the next sequence leaves holes on one node; here it is refused at once."""
    answers = await asyncio.gather(*(broker.expect(n, body=b"%d" % n) for n in range(6)))
    assert "error" not in answers[0]
    assert await seen(broker, 1) == [b"%d" % n for n in range(len(await seen(broker, 1)))]
    assert any("error" in answer for answer in answers[1:])


async def test_a_batch_is_stored_in_one_piece_or_not_at_all(broker: Broker) -> None:
    ack = await broker.batch(4, 0, id="a")
    assert (ack["seq"], ack["count"]) == (4, 4)
    assert refused(await broker.batch(3, 1, id="b"), 10071) == "wrong last sequence: 4"
    assert refused(await broker.batch(4, 0, id="c"), 10071) == "wrong last sequence: 4"
    refused(await broker.batch(4, 4, id="d", skip=2), 10176)
    assert await seen(broker, 4) == [b"1", b"2", b"3", b"4"]


async def test_an_open_batch_blocks_nobody(broker: Broker) -> None:
    headers = {EXPECTED: "0", "Nats-Batch-Id": "a", "Nats-Batch-Sequence": "1"}
    assert await broker.publish(headers=headers) is None
    assert (await broker.expect(0))["seq"] == 1


async def test_a_stream_has_50_open_batches_and_refuses_more(broker: Broker) -> None:
    for n in range(50):
        headers = {"Nats-Batch-Id": f"b{n}", "Nats-Batch-Sequence": "1"}
        assert await broker.publish(f"flightlog.v1.0.acme.s{n}.live", headers=headers) is None
    more = {"Nats-Batch-Id": "more", "Nats-Batch-Sequence": "1"}
    answer = await broker.publish(OTHER, headers=more)
    assert answer["error"]["err_code"] in (10210, 10211)
    assert (await broker.expect(0, OTHER))["seq"] == 1


async def test_a_full_stream_refuses_with_10077_and_drops_nothing(broker: Broker) -> None:
    made: Any = (await broker.api(f"STREAM.INFO.{STREAM}", {}))["config"]
    await broker.api(f"STREAM.UPDATE.{STREAM}", made | {"max_bytes": 2_000})
    await led(broker)
    assert (await broker.expect(0, body=b"y" * 1_500))["seq"] == 1
    assert "maximum" in refused(await broker.expect(1, body=b"z" * 1_500), 10077)
    assert await seen(broker, 1) == [b"y" * 1_500]


async def test_a_purge_below_the_tombstone_leaves_it_and_keeps_old_writers_out(
    broker: Broker,
) -> None:
    for sequence in range(3):
        await broker.expect(sequence)
    await broker.expect(3, body=b"tombstone")
    purged = await broker.api(f"STREAM.PURGE.{STREAM}", {"filter": SUBJECT, "seq": 4})
    assert purged["purged"] == 3
    assert refused(await broker.expect(3), 10071) == "wrong last sequence: 4"
    assert refused(await broker.expect(0), 10071) == "wrong last sequence: 4"


async def test_a_tombstone_expires_on_every_replica(broker: Broker) -> None:
    await broker.publish(body=b"tombstone", headers={"Nats-TTL": "1s", EXPECTED: "0"})
    until = time.monotonic() + PATIENCE
    while await broker.bodies():
        assert time.monotonic() < until, "it does not expire"
    assert refused(await broker.expect(1), 10071) == "wrong last sequence: 0"


async def test_a_direct_get_may_lag_behind_an_ack_and_the_leader_never_does(
    broker: Broker,
) -> None:
    for n in range(100):
        ack = await broker.expect(n, body=b"%d" % n)
        assert ack["seq"] == n + 1
        reply = await broker.direct({"seq": n + 1, "next_by_subj": SUBJECT})
        lags = (reply.headers or {}).get("Status") == "404"
        assert lags or reply.data == b"%d" % n
        shown = await broker.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": SUBJECT})
        assert shown["message"]["seq"] == n + 1
    assert await seen(broker, 100) == [b"%d" % n for n in range(100)]


async def test_a_new_leader_knows_every_ack_of_the_old_one(broker: Broker) -> None:
    last = 0
    for _ in range(5):
        for _ in range(10):
            last = (await broker.expect(last))["seq"]
        before = await led(broker)
        await broker.api(f"STREAM.LEADER.STEPDOWN.{STREAM}", {})
        until = time.monotonic() + PATIENCE
        while await led(broker) == before:
            assert time.monotonic() < until, "the leader does not change"
        shown = await broker.api(f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": SUBJECT})
        assert shown["message"]["seq"] == last
    assert len(await seen(broker, 50)) == 50


async def _quiet(_: Exception) -> None:
    """The default callback would log what the tests cause."""
