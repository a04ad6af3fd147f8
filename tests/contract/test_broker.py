"""What the design rests on, asked of a real server without any code of ours between.

Each test is a row of DESIGN section 4's answer table or a sentence of sections 3 and 5; when a new
nats-server breaks one, the row has to change with it.
"""

from collections.abc import AsyncIterator

import nats
import pytest

from flightlog_recorder.embedded import Server
from tests.contract.broker import EXPECTED, OTHER, STREAM, SUBJECT, Broker, refused


@pytest.fixture
async def broker(nats_server: Server) -> AsyncIterator[Broker]:
    client = await nats.connect(nats_server.url)
    yield Broker(client)
    await client.close()


async def test_an_expectation_holds_for_exactly_its_subject(broker: Broker) -> None:
    await broker.make()
    assert (await broker.expect(0))["seq"] == 1
    assert (await broker.expect(0, OTHER))["seq"] == 2
    assert (await broker.expect(1))["seq"] == 3
    assert await broker.bodies() == [b"x", b"x"]


@pytest.mark.parametrize("expected", [0, 1, 3, 99])
async def test_a_wrong_expectation_is_10071_and_names_the_last_sequence(
    broker: Broker, expected: int
) -> None:
    await broker.make()
    for sequence in (0, 1):
        await broker.expect(sequence)
    text = refused(await broker.expect(expected), 10071)
    assert text == "wrong last sequence: 2"
    assert len(await broker.bodies()) == 2


async def test_an_empty_expectation_is_no_expectation_so_none_is_ever_sent_empty(
    broker: Broker,
) -> None:
    await broker.make()
    await broker.publish()
    assert (await broker.expect(""))["seq"] == 2
    refused(await broker.expect("abc"), 10071)


async def test_a_batch_is_stored_in_one_piece_and_its_ack_names_the_last(broker: Broker) -> None:
    await broker.make()
    await broker.publish(OTHER)
    ack = await broker.batch(4, 0, id="a")
    assert (ack["seq"], ack["count"]) == (5, 4)
    assert await broker.bodies() == [b"1", b"2", b"3", b"4"]


async def test_a_batch_whose_expectation_fails_stores_nothing(broker: Broker) -> None:
    await broker.make()
    await broker.publish()
    assert refused(await broker.batch(4, 0, id="a"), 10071) == "wrong last sequence: 1"
    assert await broker.bodies() == [b"x"]


async def test_a_batch_sent_again_under_a_new_id_is_10071(broker: Broker) -> None:
    await broker.make()
    await broker.batch(3, 0, id="a")
    assert refused(await broker.batch(3, 0, id="b"), 10071) == "wrong last sequence: 3"
    assert len(await broker.bodies()) == 3


async def test_a_batch_sent_again_under_the_same_id_is_not_stored_twice(broker: Broker) -> None:
    await broker.make()
    await broker.batch(3, 0, id="a")
    answer = await broker.batch(3, 0, id="a")
    assert answer["error"]["err_code"] in (10071, 10201)
    assert len(await broker.bodies()) == 3


@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_a_batch_with_a_message_missing_is_10176_and_stores_nothing(
    broker: Broker, missing: int
) -> None:
    await broker.make()
    refused(await broker.batch(4, 0, id="a", skip=missing), 10176)
    assert await broker.bodies() == []


async def test_a_batch_that_is_never_committed_stores_nothing_and_blocks_nobody(
    broker: Broker,
) -> None:
    await broker.make()
    headers = {EXPECTED: "0", "Nats-Batch-Id": "a", "Nats-Batch-Sequence": "1"}
    assert await broker.publish(headers=headers) is None
    assert (await broker.expect(0))["seq"] == 1
    assert await broker.bodies() == [b"x"]


async def test_a_stream_has_50_open_batches_and_refuses_more(broker: Broker) -> None:
    await broker.make()
    for n in range(50):
        headers = {"Nats-Batch-Id": f"b{n}", "Nats-Batch-Sequence": "1"}
        assert await broker.publish(f"flightlog.v1.0.acme.s{n}.live", headers=headers) is None
    more = {"Nats-Batch-Id": "more", "Nats-Batch-Sequence": "1"}
    answer = await broker.publish(OTHER, headers=more)
    assert answer["error"]["err_code"] in (10210, 10211)
    commit = {"Nats-Batch-Id": "more", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    refused(await broker.publish(OTHER, headers=commit), 10176)
    assert await broker.bodies(OTHER) == []
    assert (await broker.expect(0, OTHER))["seq"] == 1


async def test_a_full_stream_refuses_singles_and_batches_with_10077_and_drops_nothing(
    broker: Broker,
) -> None:
    await broker.make(max_bytes=2_000)
    assert (await broker.expect(0, body=b"y" * 1_500))["seq"] == 1
    assert refused(await broker.expect(1, body=b"z" * 1_500), 10077) == "maximum bytes exceeded"
    await broker.publish(OTHER, b"z" * 100)
    first = {"Nats-Batch-Id": "a", EXPECTED: "1", "Nats-Batch-Sequence": "1"}
    await broker.publish(body=b"z" * 900, headers=first)
    commit = {"Nats-Batch-Sequence": "2", "Nats-Batch-Id": "a", "Nats-Batch-Commit": "1"}
    assert "maximum" in refused(await broker.publish(body=b"z" * 900, headers=commit), 10077)
    assert await broker.bodies() == [b"y" * 1_500]


async def test_a_message_over_the_streams_limit_is_10054(broker: Broker) -> None:
    await broker.make(max_msg_size=1_000)
    refused(await broker.expect(0, body=b"x" * 2_000), 10054)
    assert await broker.bodies() == []


async def test_the_log_denies_deletion_of_single_messages(broker: Broker) -> None:
    await broker.make()
    await broker.publish()
    refused(await broker.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 1}), 10057)
    assert await broker.bodies() == [b"x"]


async def test_a_purge_below_the_tombstone_leaves_it_and_keeps_old_writers_out(
    broker: Broker,
) -> None:
    await broker.make()
    for sequence in range(3):
        await broker.expect(sequence)
    await broker.expect(3, body=b"tombstone")
    await broker.api(f"STREAM.PURGE.{STREAM}", {"filter": SUBJECT, "seq": 4})
    assert await broker.bodies() == [b"tombstone"]
    assert refused(await broker.expect(3), 10071) == "wrong last sequence: 4"


async def test_without_a_tombstone_a_purged_subject_would_accept_a_writer_that_expects_nothing(
    broker: Broker,
) -> None:
    await broker.make()
    await broker.expect(0)
    await broker.api(f"STREAM.PURGE.{STREAM}", {"filter": SUBJECT})
    assert refused(await broker.expect(1), 10071) == "wrong last sequence: 0"
    assert (await broker.expect(0))["seq"] == 2


async def test_a_tombstone_expires_by_its_own_ttl(broker: Broker) -> None:
    await broker.make()
    await broker.publish(OTHER)
    await broker.publish(body=b"tombstone", headers={"Nats-TTL": "1s"})
    while await broker.bodies():
        pass
    assert await broker.bodies(OTHER) == [b"x"]


async def test_a_direct_get_finds_the_first_message_after_a_sequence(broker: Broker) -> None:
    await broker.make()
    for body in (b"a", b"b"):
        await broker.publish(body=body)
        await broker.publish(OTHER)
    found = await broker.direct({"seq": 2, "next_by_subj": SUBJECT})
    assert (found.data, (found.headers or {})["Nats-Sequence"]) == (b"b", "3")
    none = await broker.direct({"seq": 4, "next_by_subj": SUBJECT})
    assert (none.headers or {})["Status"] == "404"


async def test_a_batched_direct_get_says_how_much_is_left(broker: Broker) -> None:
    await broker.make()
    for n in range(5):
        await broker.publish(body=b"%d" % n)
    query = {"seq": 1, "next_by_subj": SUBJECT, "batch": 3}
    *page, end = await broker.direct_batch(query)
    assert [each.data for each in page] == [b"0", b"1", b"2"]
    assert ((end.headers or {})["Status"], (end.headers or {})["Nats-Num-Pending"]) == ("204", "2")
    *rest, end = await broker.direct_batch(query | {"seq": 4})
    assert [each.data for each in rest] == [b"3", b"4"]
    assert (end.headers or {})["Nats-Num-Pending"] == "0"
    (nothing,) = await broker.direct_batch(query | {"seq": 6})
    assert (nothing.headers or {})["Status"] == "404"


async def test_a_batched_direct_get_is_bounded_in_bytes_but_never_empty(broker: Broker) -> None:
    await broker.make()
    for _ in range(3):
        await broker.publish(body=b"x" * 50_000)
    query = {"seq": 1, "next_by_subj": SUBJECT, "batch": 10, "max_bytes": 60_000}
    *page, end = await broker.direct_batch(query)
    assert 1 <= len(page) < 3
    assert int((end.headers or {})["Nats-Num-Pending"]) == 3 - len(page)
    *one, _ = await broker.direct_batch(query | {"max_bytes": 10})
    assert len(one) == 1
