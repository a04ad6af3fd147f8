"""`flightlog doctor` on one machine: each line once well and once broken, on real servers."""

import time
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as redis

from flightlog import Log, clock
from flightlog.bus import nats_bus
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import Notices
from flightlog.cache.floor import Floor, Floors
from flightlog.cache.store import Store
from flightlog_recorder.doctor import doctor, nodes
from flightlog_recorder.doctor.doctor import CHECKS
from flightlog_recorder.doctor.finding import Finding
from flightlog_recorder.doctor.gather import Place
from flightlog_recorder.doctor.nodes import Node, Nodes
from flightlog_recorder.embedded import Servers
from tests.companions import projecting, seen_by
from tests.conftest import MakeNats, MakeRedis
from tests.edited import edit
from tests.recorder.command import Command, flightlog
from tests.recorder.recorded import talk
from tests.scripted import TENANT, until

pytestmark = pytest.mark.timeout(60)  # commands are processes of their own

LOG = "FLIGHTLOG_0"
ALONE = {
    "sync_always",
    "permissions",
    "redis permissions",
}  # what one machine without accounts cannot prove


@pytest.fixture
async def bus(servers: Servers) -> AsyncIterator[NatsBus]:
    """Who made the streams, and may do anything."""
    async with await nats_bus.connect_bus(servers.nats_url) as bus:
        yield bus


async def look(servers: Servers, *, redis_url: str = "") -> dict[str, list[Finding]]:
    """What the doctor finds, by line."""
    access = NatsAccess(url=servers.nats_url)
    found = await doctor.examine(Place(access, redis=redis_url or servers.redis_url))
    assert list(dict.fromkeys(each.check for each in found)) == list(CHECKS)
    return {check: [each for each in found if each.check == check] for check in CHECKS}


def grades(found: list[Finding]) -> set[str]:
    return {each.grade for each in found}


async def test_where_all_is_well_every_line_says_so(servers: Servers, log: Log) -> None:
    async with projecting(servers), seen_by(log, "mailer"):
        await talk(log)

        async def is_well() -> bool:
            found = await look(servers)
            print(found)
            return {check for check, rows in found.items() if grades(rows) != {"ok"}} == ALONE

        await until(is_well, timeout=20)


async def test_a_setting_that_was_changed_by_hand_is_named_with_the_command_that_mends_it(
    servers: Servers, bus: NatsBus
) -> None:
    await edit(bus, LOG, max_age=3_600_000_000_000)
    await edit(bus, "FLIGHTLOG_inbox", discard="old", metadata={})
    found = (await look(servers))["stream settings"]
    assert {each.mend for each in found} == {
        "nats stream edit FLIGHTLOG_0 --max-age=0s",
        "nats stream edit FLIGHTLOG_inbox --discard=new",
        "nats stream edit FLIGHTLOG_inbox --metadata flightlog.wire=1",
    }
    assert grades(found) == {"wrong"}
    await edit(bus, LOG, max_age=0)
    await edit(bus, "FLIGHTLOG_inbox", discard="new", metadata={"flightlog.wire": "1"})
    assert grades((await look(servers))["stream settings"]) == {"ok"}


async def test_missing_streams_are_named(servers: Servers, bus: NatsBus) -> None:
    await bus.api("STREAM.DELETE.FLIGHTLOG_dead")
    [missing] = (await look(servers))["stream settings"]
    assert (missing.grade, missing.what) == ("wrong", "FLIGHTLOG_dead: missing")
    await bus.api(f"STREAM.DELETE.{LOG}")
    [none] = (await look(servers))["stream settings"]
    assert none.mend.startswith("flightlog provision")


async def test_a_broker_without_streams_is_told_what_makes_them(servers: Servers) -> None:
    found = await look(servers)
    for check in ("stream settings", "stream room", "replicas"):
        [one] = found[check]
        assert (one.grade, one.what) == ("wrong", "this account has no Flightlog streams")
        assert one.mend.startswith("flightlog provision --streams")


async def test_a_log_that_is_nearly_full_is_named_before_it_refuses(
    servers: Servers, bus: NatsBus, log: Log
) -> None:
    assert grades((await look(servers))["stream room"]) == {"ok"}
    await talk(log)
    [state] = [
        row["state"]
        async for page in bus.stream_pages()
        for row in page["streams"]
        if row["config"]["name"] == LOG
    ]
    for share, grade in ((0.9, "warning"), (0.99, "wrong"), (0.5, "ok")):
        await edit(bus, LOG, max_bytes=int(state["bytes"] / share))
        [room] = (await look(servers))["stream room"]
        assert room.grade == grade
        assert grade == "ok" or room.mend.startswith("nats stream edit FLIGHTLOG_0 --max-bytes=")


async def test_a_small_max_payload_is_wrong(make_nats: MakeNats, redis_url: str) -> None:
    for size, grade in (("512KB", "wrong"), ("1MB", "ok"), ("16MB", "warning")):
        server = make_nats(extra=f"max_payload: {size}")
        found = await doctor.examine(Place(NatsAccess(url=server.url), redis=redis_url))
        [payload] = [each for each in found if each.check == "max_payload"]
        assert payload.grade == grade


async def test_a_server_that_is_too_old_is_wrong(
    servers: Servers, bus: NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = (99, 0, 0)
    monkeypatch.setattr("flightlog_recorder.doctor.nodes.MIN_SERVER", newer)
    [found] = (await look(servers))["server versions"]
    assert found.grade == "wrong"
    assert "older than 99.0.0" in found.what
    assert "99.0.0 or newer" in found.mend
    monkeypatch.setattr("flightlog.wire.layout.MIN_SERVER", newer)
    place = Place(NatsAccess(url=servers.nats_url))
    [alone] = await doctor.examine(place)  # nothing else is asked of such a server
    assert (alone.check, alone.grade) == ("server versions", "wrong")
    assert ".".join(map(str, bus.server_version)) in alone.what


def test_servers_of_two_versions_are_a_warning() -> None:
    each = [
        Node(name, version, 1 << 20, True) for name, version in (("a", "2.15.0"), ("b", "2.16"))
    ]
    found = [e for e in nodes.check(Nodes(each[0], each)) if e.check == nodes.VERSIONS]
    assert [(e.grade, e.what) for e in found] == [("warning", "the servers run 2.15.0, 2.16")]


async def test_a_server_without_jetstream_is_told_as_such(make_nats: MakeNats) -> None:
    server = make_nats(jetstream=False)
    found = await doctor.examine(Place(NatsAccess(url=server.url)))
    [settings] = [each for each in found if each.check == "stream settings"]
    assert settings.grade == "wrong"
    assert "has no JetStream" in settings.what


@pytest.mark.parametrize(
    ("policy", "grade"),
    [("allkeys-lru", "wrong"), ("volatile-ttl", "warning"), ("noeviction", "ok")],
)
async def test_a_redis_that_evicts_is_wrong(
    servers: Servers, make_redis: MakeRedis, policy: str, grade: str
) -> None:
    server = make_redis(extra=f"maxmemory 64mb\nmaxmemory-policy {policy}")
    [found] = (await look(servers, redis_url=server.url))["redis eviction"]
    assert found.grade == grade
    assert grade == "ok" or found.mend.startswith("redis-cli CONFIG SET maxmemory-policy noevict")


async def test_a_redis_that_is_nearly_full_is_named(
    servers: Servers, make_redis: MakeRedis
) -> None:
    server = make_redis(extra="maxmemory 64mb")
    assert grades((await look(servers, redis_url=server.url))["redis memory"]) == {"ok"}
    async with redis.Redis.from_url(server.url) as client:
        for number in range(55):
            await client.set(f"filler:{number}", b"x" * 1_000_000)
    [found] = (await look(servers, redis_url=server.url))["redis memory"]
    assert found.grade == "warning"
    assert found.mend == f"redis-cli CONFIG SET maxmemory {128 << 20}"


@pytest.mark.usefixtures("bus")
async def test_a_redis_that_is_away_is_wrong_and_one_that_is_not_named_is_unproven(
    servers: Servers,
) -> None:
    found = await look(servers, redis_url="redis://:a-secret@127.0.0.1:1/0")
    for check in ("redis eviction", "redis memory", "projector progress"):
        [one] = found[check]
        assert one.grade == "wrong"
        assert "a-secret" not in one.what + one.mend
    told = await doctor.examine(Place(NatsAccess(url=servers.nats_url)))
    [memory] = [each for each in told if each.check == "redis memory"]
    assert (memory.grade, memory.what) == ("warning", "unproven: no Redis is named")


class Shifted:
    """A clock that is off; chance as ever."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._true = seconds, clock.SOURCE.get()

    def wall_ns(self) -> int:
        return time.time_ns() + int(self._seconds * 1e9)

    def bits(self, count: int) -> int:
        return self._true.bits(count)

    def fraction(self) -> float:
        return self._true.fraction()


@pytest.mark.usefixtures("bus")
@pytest.mark.parametrize(("seconds", "grade"), [(-5.0, "warning"), (100.0, "wrong"), (0.0, "ok")])
async def test_a_clock_that_is_off_is_told_for_each_server(
    servers: Servers, seconds: float, grade: str
) -> None:
    restored = clock.SOURCE.set(Shifted(seconds))
    try:
        found = (await look(servers))["clocks"]
    finally:
        clock.SOURCE.reset(restored)
    assert grades(found) == {grade}
    assert len(found) == (1 if grade == "ok" else 2)  # NATS and Redis
    assert all(("behind" in each.what) == (seconds > 0) for each in found if grade != "ok")


@pytest.mark.usefixtures("bus")
async def test_where_no_projector_ever_ran_both_its_lines_are_wrong(
    servers: Servers,
) -> None:
    found = await look(servers)
    assert grades(found["projector lag"]) == grades(found["projector progress"]) == {"wrong"}


@pytest.mark.usefixtures("bus")
async def test_a_projector_that_is_gone_is_missed_whether_there_is_work_or_not(
    servers: Servers, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog_recorder.doctor.consumers.GONE", 0.1)
    async with projecting(servers):
        await until(lambda: _whole(servers))
    for _ in ("idle", "with work"):
        [lag] = (await look(servers))["projector lag"]
        assert (lag.grade, lag.what) == ("wrong", f"{LOG}: no projector is running")
        await talk(log)


async def _whole(servers: Servers) -> bool:
    return grades((await look(servers))["projector progress"]) == {"ok"}


async def test_messages_that_wait_for_long_are_told_of_projector_and_subscriber(
    servers: Servers, bus: NatsBus, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog_recorder.doctor.consumers.OLD", 0.2)
    for durable in ("projector", f"mailer@{TENANT}"):
        await Notices(bus, LOG, durable).open()
    await talk(log)

    async def stand_still() -> bool:
        found = await look(servers)
        rows = [*found["projector lag"], *found["subscriber lag"]]
        return len(rows) == 2 and all("none was settled for" in each.what for each in rows)

    await until(stand_still)
    found = await look(servers)
    [mailer] = found["subscriber lag"]
    assert mailer.mend.endswith(f"flightlog --tenant {TENANT} subscribe --remove --name mailer")


async def test_a_subscriber_without_a_process_is_told_once(servers: Servers, log: Log) -> None:
    async with seen_by(log, "mailer"):
        pass
    [mailer] = (await look(servers))["subscriber lag"]
    assert (mailer.grade, mailer.what) == (
        "warning",
        f"mailer@{TENANT}: no process of it is running",
    )


async def test_a_catalog_of_another_time_or_place_is_told(
    servers: Servers, log: Log, make_redis: MakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flightlog_recorder.doctor.catalog.STALE", 0.2)
    other = make_redis().url
    store = Store.connect(other)
    floors = Floors(store, LOG, replica="one")
    await _set(floors, 10**6)
    [found] = (await look(servers, redis_url=other))["projector progress"]
    assert "restored or made anew" in found.what
    await _set(floors, 1)
    async with projecting(servers):
        await talk(log)

        async def elsewhere() -> bool:
            [found] = (await look(servers, redis_url=other))["projector progress"]
            return found.grade == "wrong" and "not the projector's Redis" in found.what

        await until(elsewhere, timeout=20)
    await floors.claim()
    [found] = (await look(servers, redis_url=other))["projector progress"]
    assert (found.grade, "being rebuilt" in found.what) == ("warning", True)
    await floors.release()
    await floors.set_aside(TENANT, "sess_poison")
    rows = (await look(servers, redis_url=other))["projector progress"]
    assert "flightlog verify sess_poison" in [each.mend for each in rows]
    await store.close()


async def _set(floors: Floors, sequence: int) -> None:
    assert await floors.claim()
    assert await floors.create(Floor("generation", sequence))
    await floors.release()


@pytest.mark.usefixtures("bus")
async def test_the_command_prints_a_line_each_and_ends_as_a_gate(
    servers: Servers,
) -> None:
    command = flightlog(servers)
    ran = await command("doctor")
    assert ran.code == 1
    rows = ran.out.splitlines()
    assert [row[9:29].strip() for row in rows[:-1]] == list(CHECKS)
    assert rows[-1] == "9 ok, 3 warnings, 2 wrong"
    assert "; mend: " in rows[2]
    async with projecting(servers):
        await until(lambda: _whole(servers))
        assert (await command("doctor")).code == 0
        assert (await command("doctor", "--strict")).code == 1
        told = (await command("doctor", "--json")).json["findings"]
        assert [each["check"] for each in told] == list(CHECKS)
        assert told[0].keys() == {"check", "grade", "what", "mend"}


async def test_wrong_usage_and_a_bus_that_is_away_have_their_own_exit_codes() -> None:
    command = Command({"FLIGHTLOG_NATS_URL": "nats://127.0.0.1:1"})
    assert (await command("doctor")).code == 3
    assert (await command("doctor", "--role", "king")).code == 2
    assert (await command("doctor", "--role", "subscriber")).code == 2
