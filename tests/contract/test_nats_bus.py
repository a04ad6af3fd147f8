"""The bus protocol on a real server: what is stored, what is refused, what a failure says."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flightlog.bus import nats_bus
from flightlog.bus.answer import Acked, Answer, Busy, Conflict, Full, Oversized, Unclear
from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus
from flightlog.bus.protocol import Message, Outgoing
from flightlog.errors import BusUnavailable, LayoutRefused, NotPermitted
from flightlog.wire import layout, subject
from flightlog_recorder.embedded import Server
from tests.conftest import MakeNats
from tests.network import Network

SUBJECT = subject.log_subject("acme", "one", "live")
OTHER = subject.log_subject("acme", "two", "live")
STREAM = "FLIGHTLOG_0"
PASSWORD = "correct-horse"
QUICKLY = 3.0  # seconds; what is known at once must not wait for a timeout of five


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[NatsBus]:
    async with await connect_bus(nats_url) as connected:
        yield connected


def out(*bodies: bytes) -> list[Outgoing]:
    return [Outgoing(body, {"Flightlog-Type": "note"}) for body in bodies]


async def append(bus: NatsBus, *bodies: bytes, expected: int, to: str = SUBJECT) -> Answer:
    return await bus.append(to, out(*bodies), expected=expected, timeout=5)


async def everything(bus: NatsBus, of: str = SUBJECT) -> list[Message]:
    found: list[Message] = []
    start, more = 0, True
    while more:
        page = await bus.page(STREAM, of, start)
        found += page.messages
        start, more = (found[-1].sequence + 1 if found else 0), page.more
    return found


async def bodies(bus: NatsBus, of: str = SUBJECT) -> list[bytes]:
    return [message.body for message in await everything(bus, of)]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; the test's timeout is the deadline."""
    while not await holds():
        await asyncio.sleep(0.01)


# --- appending ---


async def test_an_append_is_acked_with_stream_and_sequence(bus: NatsBus) -> None:
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)
    assert await append(bus, b"b", b"c", b"d", expected=1) == Acked(STREAM, 4)
    assert [each.sequence for each in await everything(bus)] == [1, 2, 3, 4]


@pytest.mark.parametrize("sent", [[b"z"], [b"y", b"z"]], ids=["single", "batch"])
async def test_a_wrong_expectation_stores_nothing_and_names_the_last_sequence(
    bus: NatsBus, sent: list[bytes]
) -> None:
    await append(bus, b"a", b"b", expected=0)
    assert await append(bus, *sent, expected=1) == Conflict(2)
    assert await append(bus, *sent, expected=7) == Conflict(2)
    assert await bodies(bus) == [b"a", b"b"]


async def test_the_same_batch_sent_again_is_a_conflict_not_a_second_copy(bus: NatsBus) -> None:
    batch = out(b"a", b"b", b"c")
    assert await bus.append(SUBJECT, batch, expected=0, timeout=5) == Acked(STREAM, 3)
    assert await bus.append(SUBJECT, batch, expected=0, timeout=5) == Conflict(3)


async def test_appends_to_other_sessions_do_not_disturb_an_expectation(bus: NatsBus) -> None:
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)
    assert await append(bus, b"b", expected=0, to=OTHER) == Acked(STREAM, 2)
    assert await append(bus, b"c", expected=1) == Acked(STREAM, 3)


async def test_of_many_racing_writers_exactly_one_wins_each_round(bus: NatsBus) -> None:
    last = 0
    for _ in range(20):
        answers = await asyncio.gather(
            *(append(bus, b"%d" % n, b"and", expected=last) for n in range(8))
        )
        won = [each for each in answers if isinstance(each, Acked)]
        assert len(won) == 1
        assert all(isinstance(each, Acked | Conflict) for each in answers)
        last = won[0].sequence
    assert len(await bodies(bus)) == 40


async def test_a_batch_is_busy_while_fifty_are_open_and_a_single_is_not(bus: NatsBus) -> None:
    client = await bus.client()
    for n in range(50):
        to = subject.log_subject("acme", f"open{n}", "live")
        headers = {"Nats-Batch-Id": f"b{n}", "Nats-Batch-Sequence": "1"}
        await client.request(to, b"x", headers=headers, timeout=5)
    assert await append(bus, b"a", b"b", expected=0) == Busy()
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)


@pytest.mark.parametrize("count", [1, 3], ids=["single", "batch"])
async def test_a_full_stream_says_full_and_keeps_what_it_has(bus: NatsBus, count: int) -> None:
    config = dict((await bus.stream_configs())[0]) | {"max_bytes": 4_000}
    assert config["name"] == STREAM
    await bus.api(f"STREAM.UPDATE.{STREAM}", json.dumps(config).encode())
    assert await append(bus, b"a" * 3_500, expected=0) == Acked(STREAM, 1)
    assert await append(bus, *[b"b" * 1_500] * count, expected=1) == Full(STREAM)
    assert len(await bodies(bus)) == 1


async def test_a_full_account_says_full_too(make_nats: MakeNats) -> None:
    access = f"""accounts {{ A {{
      jetstream: {{ max_file: 100KB }}
      users: [ {{ user: a, password: {PASSWORD} }} ]
    }} }}"""
    server = make_nats(access=access)
    async with await connect_bus(f"nats://a:{PASSWORD}@127.0.0.1:{server.port}") as bus:
        answer: Answer = Acked("", 0)
        while isinstance(answer, Acked):
            answer = await append(bus, b"x" * 20_000, expected=answer.sequence)
        assert answer == Full(STREAM)


@pytest.mark.parametrize("over", [-50, 10], ids=["headers", "body"])
async def test_what_the_server_would_close_the_connection_for_is_never_sent(
    bus: NatsBus, over: int
) -> None:
    large = b"x" * (bus.max_payload + over)
    assert await append(bus, large, expected=0) == Oversized(bus.max_payload)
    assert await append(bus, b"small", large, expected=0) == Oversized(bus.max_payload)
    assert bus.connected
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)


async def test_the_largest_message_that_fits_is_stored_and_read_back(bus: NatsBus) -> None:
    large = b"x" * (bus.max_payload - 120)
    assert await append(bus, large, expected=0) == Acked(STREAM, 1)
    assert await append(bus, large, expected=1) == Acked(STREAM, 2)
    assert await bodies(bus) == [large, large]


async def test_headers_are_stored_as_given_with_the_expectation_on_the_first_only(
    bus: NatsBus,
) -> None:
    await bus.append(
        SUBJECT,
        [Outgoing(b"a", {"Flightlog-Seq": "1"}), Outgoing(b"b", {"traceparent": "00-aa-bb-01"})],
        expected=0,
        timeout=5,
    )
    client = await bus.client()
    found: list[dict[str, str]] = []
    for sequence in (1, 2):
        query = json.dumps({"seq": sequence}).encode()
        reply = await client.request(f"$JS.API.DIRECT.GET.{STREAM}", query, timeout=5)
        found.append(dict(reply.headers or {}))
    assert (found[0]["Flightlog-Seq"], found[0][nats_bus.EXPECTED]) == ("1", "0")
    assert found[1]["traceparent"] == "00-aa-bb-01"
    assert nats_bus.EXPECTED not in found[1]
    assert "Nats-Msg-Id" not in found[0]


# --- reading ---


async def test_pages_are_bounded_and_together_hold_everything_in_order(bus: NatsBus) -> None:
    last = 0
    wanted: list[bytes] = []
    for group in range(10):
        batch = [b"%d" % (group * 250 + n) for n in range(250)]
        wanted += batch
        answer = await append(bus, *batch, expected=last)
        assert isinstance(answer, Acked)
        last = answer.sequence
    first = await bus.page(STREAM, SUBJECT, 0)
    assert len(first.messages) == nats_bus.PAGE_MESSAGES
    assert first.more
    assert await bodies(bus) == wanted


async def test_a_page_is_bounded_in_bytes(bus: NatsBus) -> None:
    for n in range(4):
        await append(bus, b"x" * 400_000, expected=n)
    first = await bus.page(STREAM, SUBJECT, 0)
    assert 1 <= len(first.messages) <= 3
    assert first.more
    assert len(await bodies(bus)) == 4


async def test_a_page_behind_the_end_is_empty_and_final(bus: NatsBus) -> None:
    for start in (0, 99):
        page = await bus.page(STREAM, SUBJECT, start)
        assert (page.messages, page.more) == ([], False)


@pytest.mark.parametrize("leader", [False, True])
async def test_the_first_message_after_a_sequence_is_found_or_none(
    bus: NatsBus, leader: bool
) -> None:
    await append(bus, b"a", expected=0)
    await append(bus, b"other", expected=0, to=OTHER)
    await append(bus, b"b", b"", expected=1)
    assert await bus.after(STREAM, SUBJECT, 0, leader=leader) == Message(SUBJECT, 1, b"a")
    assert await bus.after(STREAM, SUBJECT, 1, leader=leader) == Message(SUBJECT, 3, b"b")
    assert await bus.after(STREAM, SUBJECT, 3, leader=leader) == Message(SUBJECT, 4, b"")
    assert await bus.after(STREAM, SUBJECT, 4, leader=leader) is None
    assert await bus.last(STREAM, OTHER) == Message(OTHER, 2, b"other")
    assert await bus.last(STREAM, subject.log_subject("acme", "no", "live")) is None


async def test_a_stored_message_cannot_pass_for_the_end_of_the_log(bus: NatsBus) -> None:
    client = await bus.client()
    forged = [{"Status": "404"}, {"Status": "204", "Nats-Num-Pending": "0"}, {"Nats-Sequence": "9"}]
    for headers in forged:
        await client.request(SUBJECT, b"forged", headers=headers, timeout=5)
    await append(bus, b"real", expected=3)
    assert [(each.sequence, each.body) for each in await everything(bus)] == [
        (1, b"forged"),
        (2, b"forged"),
        (3, b"forged"),
        (4, b"real"),
    ]
    assert await bus.after(STREAM, SUBJECT, 0) == Message(SUBJECT, 1, b"forged")


async def test_a_stream_that_is_gone_is_no_empty_log(bus: NatsBus) -> None:
    began = time.monotonic()
    with pytest.raises(BusUnavailable):
        await bus.page("NOWHERE", SUBJECT, 0)
    for leader in (False, True):
        with pytest.raises(BusUnavailable):
            await bus.after("NOWHERE", SUBJECT, 0, leader=leader)
    with pytest.raises(BusUnavailable):
        await bus.last("NOWHERE", SUBJECT)
    assert time.monotonic() - began < QUICKLY


async def test_subjects_are_listed_with_their_counts(bus: NatsBus) -> None:
    await append(bus, b"a", b"b", expected=0)
    await append(bus, b"c", expected=0, to=OTHER)
    pages = [page async for page in bus.subjects(STREAM)]
    assert pages == [{SUBJECT: 2, OTHER: 1}]
    assert [page async for page in bus.subjects(STREAM, filter="nothing.>")] == []
    with pytest.raises(LayoutRefused, match="NOWHERE"):
        _ = [page async for page in bus.subjects("NOWHERE")]


async def test_a_purge_removes_one_subject_below_a_sequence(bus: NatsBus) -> None:
    await append(bus, b"a", b"b", b"c", expected=0)
    await append(bus, b"other", expected=0, to=OTHER)
    assert await bus.purge(STREAM, SUBJECT, below=3) == 2
    assert await bodies(bus) == [b"c"]
    assert await bodies(bus, OTHER) == [b"other"]
    with pytest.raises(BusUnavailable):
        await bus.purge("NOWHERE", SUBJECT, below=3)


# --- hints ---


async def test_a_listener_hears_appends_and_what_is_said(bus: NatsBus) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    listening = await bus.listen(SUBJECT, heard.put)
    await append(bus, b"a", expected=0)
    await bus.say(SUBJECT, b"b")
    assert [(await heard.get()).body for _ in range(2)] == [b"a", b"b"]
    await listening.close()
    await listening.close()
    await append(bus, b"c", expected=2)
    assert heard.empty()


async def test_without_echo_a_writer_hears_others_and_not_itself(nats_url: str) -> None:
    async with (
        await connect_bus(nats_url, echo=False) as writer,
        await connect_bus(nats_url) as other,
    ):
        heard: asyncio.Queue[Message] = asyncio.Queue()
        await writer.listen(SUBJECT, heard.put)
        await append(writer, b"mine", expected=0)
        await append(other, b"foreign", expected=1)
        assert (await heard.get()).body == b"foreign"
        async with await writer.twin(echo=True) as twin:
            assert twin.layout == writer.layout
            assert await append(twin, b"twin", expected=2) == Acked(STREAM, 3)


# --- when it fails ---


async def test_no_bus_is_one_clear_error_in_time(free_port: int) -> None:
    began = time.monotonic()
    with pytest.raises(BusUnavailable, match=f"127.0.0.1:{free_port}: nothing listens there"):
        await connect_bus(f"nats://secret-token@127.0.0.1:{free_port}", timeout=0.5)
    assert time.monotonic() - began < 0.5 + QUICKLY


@pytest.fixture
def free_port(make_nats: MakeNats) -> int:
    """A port on which nobody listens any more."""
    server = make_nats()
    server.kill()
    return server.port


@pytest.mark.parametrize("asked", [b"STREAM.LIST", b"STREAM.CREATE"])
async def test_a_link_that_is_lost_while_connecting_is_made_again(
    nats_url: str, asked: bytes
) -> None:
    async with (
        Network(nats_url, at=asked, then="cut") as network,
        await connect_bus(network.url) as bus,
    ):
        assert network.struck.is_set()
        assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)


async def test_a_link_that_stalls_while_connecting_is_given_up_in_time(nats_url: str) -> None:
    async with Network(nats_url, at=b"STREAM.LIST", then="stall") as network:
        begun = time.monotonic()
        with pytest.raises(BusUnavailable, match="in time"):
            await connect_bus(network.url, timeout=1)
        assert time.monotonic() - begun < 1 + QUICKLY


@pytest.mark.parametrize("url", ["", "://", "nats://", "nats://host:port", "127.0.0.1:0"])
async def test_a_url_that_is_none_is_one_clear_error(url: str) -> None:
    with pytest.raises(BusUnavailable):
        await connect_bus(url, timeout=0.3)


async def test_a_wrong_password_is_told_at_once_and_never_repeated(nats_server: Server) -> None:
    began = time.monotonic()
    for url in (
        f"nats://wr0ng-t0ken@127.0.0.1:{nats_server.port}",
        f"127.0.0.1:{nats_server.port}",
    ):
        with pytest.raises(NotPermitted, match="refused the credentials") as refused:
            await connect_bus(url)
        assert "wr0ng" not in str(refused.value)
    assert time.monotonic() - began < QUICKLY


async def test_a_bus_without_jetstream_is_told_at_once(make_nats: MakeNats) -> None:
    began = time.monotonic()
    server = make_nats(jetstream=False)
    started = time.monotonic()
    with pytest.raises(LayoutRefused, match="no JetStream; enable jetstream"):
        await connect_bus(server.url)
    assert time.monotonic() - started < QUICKLY
    assert started >= began


async def test_a_server_that_takes_too_little_at_once_is_named(make_nats: MakeNats) -> None:
    server = make_nats(extra="max_payload: 2048")
    with pytest.raises(LayoutRefused, match=r"2048 bytes only; raise its max_payload"):
        await connect_bus(server.url)


def permissions(allowed: str) -> str:
    return f"""authorization {{ users: [
      {{ user: boss, password: {PASSWORD} }}
      {{ user: agent, password: {PASSWORD}, permissions: {{ {allowed} }} }}
    ] }}"""


async def refusals(make_nats: MakeNats, allowed: str) -> tuple[str, NatsBus]:
    """The URL of a user with these permissions only, and the boss' bus."""
    server = make_nats(access=permissions(allowed))
    boss = await connect_bus(f"nats://boss:{PASSWORD}@127.0.0.1:{server.port}")
    return f"nats://agent:{PASSWORD}@127.0.0.1:{server.port}", boss


READER = 'publish: ["$JS.API.STREAM.LIST", "$JS.API.DIRECT.GET.>"], subscribe: "_INBOX.>"'


@pytest.mark.parametrize("session", ["one", "UPPER_case-9"])
async def test_a_missing_permission_is_named_at_once(make_nats: MakeNats, session: str) -> None:
    url, boss = await refusals(make_nats, READER)
    to = subject.log_subject("acme", session, "live")
    async with boss, await connect_bus(url) as agent:
        began = time.monotonic()
        for count in (1, 3):
            with pytest.raises(NotPermitted, match=f"publish to {to}"):
                await append(agent, *[b"x"] * count, expected=0, to=to)
        with pytest.raises(NotPermitted, match=r"publish to .*MSG\.GET"):
            await agent.last(STREAM, to)
        with pytest.raises(NotPermitted, match=f"listen to {to}"):
            await agent.listen(to, lambda _: asyncio.sleep(0))
        assert await agent.after(STREAM, to, 0) is None
        assert time.monotonic() - began < QUICKLY
        assert await bodies(boss, to) == []


@pytest.mark.parametrize(
    ("allowed", "named"),
    [
        ('publish: "nothing", subscribe: "_INBOX.>"', "publish to .JS.API.STREAM.LIST"),
        ('publish: ">", subscribe: "nothing"', "receive answers on _inbox"),
    ],
)
async def test_a_user_who_may_not_even_connect_properly_is_told_why(
    make_nats: MakeNats, allowed: str, named: str
) -> None:
    url, boss = await refusals(make_nats, allowed)
    async with boss:
        began = time.monotonic()
        with pytest.raises(NotPermitted, match=named):
            await connect_bus(url)
        assert time.monotonic() - began < QUICKLY


async def test_a_permission_granted_later_is_seen(make_nats: MakeNats) -> None:
    url, boss = await refusals(make_nats, READER + ', publish: {allow: [">"], deny: ["$KV.>"]}')
    async with boss, await connect_bus(url) as agent:
        with pytest.raises(NotPermitted):
            await agent.request("$KV.secret", b"x")
        assert await append(agent, b"a", expected=0) == Acked(STREAM, 1)


# --- layout ---


async def test_an_empty_broker_on_loopback_is_provisioned_once(nats_url: str) -> None:
    async with await connect_bus(nats_url) as first:
        assert first.layout.streams == (STREAM,)
        configs = await first.stream_configs()
    async with await connect_bus(nats_url) as second:
        assert await second.stream_configs() == configs
    assert {config["name"] for config in configs} == {
        STREAM,
        layout.INBOX_STREAM,
        layout.NOTICE_STREAM,
        layout.BLOB_STREAM,
        layout.DEAD_STREAM,
        layout.KEYS_STREAM,
    }


async def test_many_processes_may_provision_the_same_broker_at_once(nats_url: str) -> None:
    buses = await asyncio.gather(*(connect_bus(nats_url) for _ in range(8)))
    assert {bus.layout for bus in buses} == {buses[0].layout}
    for bus in buses:
        await bus.close()


async def test_a_broker_that_may_not_be_provisioned_names_the_command(nats_url: str) -> None:
    with pytest.raises(LayoutRefused, match="run: flightlog provision"):
        await connect_bus(nats_url, provision=False)
    async with await connect_bare(nats_url) as bare:
        assert await bare.stream_configs() == []


@pytest.mark.parametrize(
    ("where", "loopback"),
    [
        ("127.0.0.1:4222", True),
        ("nats://localhost:4222", True),
        ("[::1]:4222", True),
        ("127.0.0.1:1, 127.0.0.1:2", True),
        ("127.0.0.1:1, nats.prod:4222", False),
        ("10.0.0.7:4222", False),
        ("localhost.evil.com:4222", False),
    ],
)
def test_only_loopback_counts_as_a_broker_of_ones_own(where: str, loopback: bool) -> None:
    assert nats_bus._is_loopback(where) is loopback


async def test_a_stream_with_other_settings_is_refused_and_left_as_it_is(nats_url: str) -> None:
    async with await connect_bare(nats_url) as bare:
        configs = [*layout.log_configs(2), *layout.side_configs()]
        configs[1] |= {"discard": "old", "deny_delete": False}
        await nats_bus.create(bare, configs)
        before = await bare.stream_configs()
        with pytest.raises(LayoutRefused, match=r"FLIGHTLOG_1 has other settings: .*discard"):
            await connect_bus(nats_url)
        assert await bare.stream_configs() == before


async def test_a_layout_of_many_streams_is_discovered(nats_url: str) -> None:
    async with await connect_bare(nats_url) as bare:
        await nats_bus.create_streams(bare, streams=8)
    async with await connect_bus(nats_url) as bus:
        assert len(bus.layout.streams) == 8
        for n in range(20):
            to = subject.log_subject("acme", f"s{n}", "live")
            answer = await append(bus, b"x", expected=0, to=to)
            assert isinstance(answer, Acked)
            assert answer.stream == bus.layout.stream_of(f"s{n}")


async def test_streams_of_others_are_no_part_of_the_layout(nats_url: str) -> None:
    async with await connect_bare(nats_url) as bare:
        await nats_bus.create(bare, [{"name": "ORDERS", "subjects": ["orders.>"]}])
        await nats_bus.create_streams(bare)
        with pytest.raises(LayoutRefused, match="stream GREEDY"):
            await nats_bus.create(bare, [{"name": "GREEDY", "subjects": ["orders.new"]}])
    async with await connect_bus(nats_url) as bus:
        assert bus.layout.streams == (STREAM,)


async def test_an_older_server_is_refused_by_version(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MIN_SERVER", (99, 0, 0))
    with pytest.raises(
        LayoutRefused, match=r"nats-server 2\.\d+\.\d+ at .* is too old; use 99.0.0"
    ):
        await connect_bus(nats_url)


# --- down and back ---


async def test_a_bus_that_goes_down_and_comes_back_on_the_same_data_serves_on(
    nats_server: Server, bus: NatsBus
) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    missed = asyncio.Event()
    await bus.listen(OTHER, heard.put, missed=missed.set)
    await append(bus, b"a", expected=0)
    assert not missed.is_set()
    nats_server.kill()
    began = time.monotonic()
    for count in (1, 3):
        assert isinstance(await append(bus, *[b"lost"] * count, expected=1), Unclear)
    with pytest.raises(BusUnavailable):
        await bus.page(STREAM, SUBJECT, 0)
    with pytest.raises(BusUnavailable):
        await bus.after(STREAM, SUBJECT, 0, leader=True)
    assert time.monotonic() - began < QUICKLY
    await bus.say(OTHER, b"nobody hears this")
    nats_server.start()

    async def appended() -> bool:
        return await append(bus, b"b", expected=1) == Acked(STREAM, 2)

    await until(appended)
    assert await bodies(bus) == [b"a", b"b"]
    await append(bus, b"c", expected=0, to=OTHER)
    assert (await heard.get()).body == b"c"
    async with asyncio.timeout(5):
        await missed.wait()


async def test_what_failed_while_the_link_was_down_is_never_stored_later(
    nats_server: Server, bus: NatsBus
) -> None:
    nats_server.kill()
    for n in range(20):
        answers = [
            await append(bus, b"ghost %d" % n, expected=0),
            await append(bus, b"a", b"b", expected=0),
        ]
        assert all(isinstance(each, Unclear) for each in answers)
    nats_server.start()

    async def up() -> bool:
        return bus.connected

    await until(up)
    assert await append(bus, b"real", expected=0) == Acked(STREAM, 1)
    assert await bodies(bus) == [b"real"]


async def test_a_bus_that_freezes_leaves_an_append_unclear_and_its_bytes_can_be_found(
    nats_server: Server, bus: NatsBus
) -> None:
    await append(bus, b"a", expected=0)
    nats_server.pause()
    try:
        answer = await bus.append(SUBJECT, out(b"b"), expected=1, timeout=0.3)
        assert answer == Unclear("TimeoutError")
    finally:
        nats_server.resume()

    async def resolved() -> bool:
        return await append(bus, b"b", expected=1) == Conflict(2)

    await until(resolved)
    assert await bus.after(STREAM, SUBJECT, 1) == Message(SUBJECT, 2, b"b")


async def test_a_connection_that_the_server_closed_for_good_is_rebuilt_with_its_listeners(
    bus: NatsBus,
) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    missed = asyncio.Event()
    await bus.listen(SUBJECT, heard.put, missed=missed.set)
    client = await bus.client()
    await client.publish(SUBJECT, b"x" * bus.max_payload, headers={"too": "much"})

    async def closed() -> bool:
        return client.is_closed

    await until(closed)
    assert await append(bus, b"a", expected=0) == Acked(STREAM, 1)
    assert (await heard.get()).body == b"a"
    assert await bus.client() is not client
    assert missed.is_set()


async def test_a_closed_bus_stays_closed_and_says_so(bus: NatsBus) -> None:
    await bus.close()
    await bus.close()
    with pytest.raises(BusUnavailable, match="this connection was closed"):
        await bus.after(STREAM, SUBJECT, 0)
    assert isinstance(await append(bus, b"a", expected=0), Unclear)


async def test_a_lost_broker_fails_all_that_waits_at_once(
    nats_server: Server, bus: NatsBus
) -> None:
    nats_server.pause()
    waiting: list[asyncio.Task[Any]] = [
        asyncio.create_task(append(bus, b"%d" % n, expected=0)) for n in range(10)
    ]
    waiting.append(asyncio.create_task(bus.page(STREAM, SUBJECT, 0)))
    await asyncio.sleep(0)
    nats_server.kill()
    began = time.monotonic()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - began < QUICKLY
    assert all(isinstance(each, Unclear) for each in answers[:-1])
    assert isinstance(answers[-1], BusUnavailable)
