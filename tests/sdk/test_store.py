"""The store on a real Redis or Valkey: compare-and-set, listings, purge, and how it is missed."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import redis.asyncio as redis

from flightlog.cache import store as stores
from flightlog.cache.catalog import Cursor, Filter, Row
from flightlog.cache.floor import Floor, Floors, rebuilding
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.errors import NotPermitted
from flightlog_recorder.embedded import Server
from tests.conftest import MakeRedis

TENANT = "acme"
SECRET = "do-not-print-me"


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    connected = Store.connect(redis_url)
    yield connected
    await connected.close()


@pytest.fixture
async def raw(redis_url: str) -> AsyncIterator["redis.Redis"]:
    async with redis.Redis.from_url(redis_url) as client:
        yield client


def row(session: str, read_to: int, **fields: Any) -> Row:
    second = fields.pop("second", 0)
    fields.setdefault("last_ts", f"2026-05-06T14:23:{second:02d}.000000Z")
    return Row(tenant=TENANT, session=session, read_to=read_to, sequence=read_to, **fields)


async def listed(store: Store, wanted: Filter | None = None, *, limit: int = 100) -> list[str]:
    page = await store.rows(TENANT, wanted or Filter(), limit=limit)
    return [found.session for found in page.rows]


async def test_a_row_comes_back_as_it_was_saved(store: Store) -> None:
    saved = row(
        "s1", 7, key="nightly/ü\n😀", labels={"job": "a:b=c"}, status="running", counts={"x": 2}
    )
    assert (await store.save_row(saved)).written
    assert await store.row(TENANT, "s1") == saved
    assert await store.row(TENANT, "s2") is None
    assert await store.row("other", "s1") is None


async def test_the_row_that_reaches_further_wins_in_any_order(store: Store) -> None:
    rows = [row("s1", n, status="running" if n % 2 else "suspended") for n in range(1, 30)]
    random.Random(4).shuffle(rows)
    await asyncio.gather(*(store.save_row(each) for each in rows))
    found = await store.row(TENANT, "s1")
    assert found is not None
    assert (found.read_to, found.status) == (29, "running")
    assert await listed(store, Filter(status="running")) == ["s1"]
    assert await listed(store, Filter(status="suspended")) == []


async def test_sequences_beyond_what_a_double_holds_are_told_apart(store: Store) -> None:
    top = 2**53
    await store.save_row(row("s1", top))
    assert (await store.save_row(row("s1", top + 1))).written
    assert not (await store.save_row(row("s1", top))).written


async def test_saving_the_same_row_again_is_no_conflict(store: Store) -> None:
    await store.save_row(row("s1", 3))
    again = await store.save_row(row("s1", 3))
    assert again.conflicts <= 1
    assert await listed(store) == ["s1"]


async def test_a_row_that_was_seen_before_another_writer_is_written_again(store: Store) -> None:
    (seen,) = await store.look(TENANT, ["s1"])
    await store.save_row(row("s1", 3))
    saved = await store.save_row(row("s1", 4), seen=seen)
    assert (saved.written, saved.conflicts) == (True, 1)


async def test_rows_are_listed_newest_activity_first_and_in_pages(store: Store) -> None:
    seconds = list(range(25))
    random.Random(1).shuffle(seconds)
    for second in seconds:
        await store.save_row(row(f"s{second:02d}", 100 + second, second=second))
    names, before = [], None
    while True:
        page = await store.rows(TENANT, before=before, limit=4)
        names += [found.session for found in page.rows]
        if page.after is None:
            break
        before = page.after
    assert names == [f"s{n:02d}" for n in reversed(range(25))]


async def test_more_rows_of_one_time_than_a_chunk_holds_are_all_listed_once(store: Store) -> None:
    names = {f"s{n:04d}" for n in range(1_100)}
    await asyncio.gather(*(store.save_row(row(name, 5)) for name in names))
    listing: list[str] = []
    before: Cursor | None = None
    while True:
        page = await store.rows(TENANT, before=before, limit=333)
        listing += [found.session for found in page.rows]
        if page.after is None:
            break
        before = page.after
    assert len(listing) == len(names)
    assert set(listing) == names


async def test_rows_are_found_by_status_label_and_what_they_wait_for(store: Store) -> None:
    await store.save_row(row("s1", 1, status="running", waiting="model", labels={"job": "a"}))
    await store.save_row(row("s2", 2, status="running", waiting="decide", labels={"job": "b"}))
    await store.save_row(row("s3", 3, status="completed", labels={"job": "a", "x": "y"}))
    assert await listed(store, Filter(status="running")) == ["s2", "s1"]
    assert await listed(store, Filter(waiting="decide")) == ["s2"]
    assert await listed(store, Filter(labels={"job": "a"})) == ["s3", "s1"]
    assert await listed(store, Filter(labels={"job": "a"}, status="running")) == ["s1"]
    assert await listed(store, Filter(labels={"job": "c"})) == []


async def test_a_row_leaves_the_indexes_that_it_no_longer_belongs_to(
    store: Store, raw: "redis.Redis"
) -> None:
    await store.save_row(row("s1", 1, status="running", labels={"job": "a"}, error="damaged"))
    await store.save_row(row("s1", 2, status="completed", labels={"job": "b"}))
    held = [key async for key in raw.scan_iter("*:by:*") if await raw.zscore(key, "s1") is not None]
    assert len(held) == 3
    assert await listed(store, Filter(damaged=True)) == []


async def test_rows_are_found_by_key_and_by_its_beginning(store: Store) -> None:
    keys = ["nightly/1", "nightly/10", "nightly/2", "weekly/1", "näch\0t"]
    for n, key in enumerate(keys):
        await store.save_row(row(f"s{n}", n + 1, key=key, second=n))
    assert await listed(store, Filter(key="nightly/1")) == ["s0"]
    assert await listed(store, Filter(key_prefix="nightly/")) == ["s2", "s1", "s0"]
    assert await listed(store, Filter(key="näch\0t")) == ["s4"]
    page = await store.rows(TENANT, Filter(key_prefix="nightly/"), limit=2)
    rest = await store.rows(TENANT, Filter(key_prefix="nightly/"), before=page.after, limit=2)
    assert [found.session for found in page.rows + rest.rows] == ["s2", "s1", "s0"]
    assert (rest.after, rest.partial) == (None, False)


async def test_a_listing_by_a_key_that_too_many_have_says_that_it_is_not_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_KEYS_SCANNED", 3)
    for n in range(5):
        await store.save_row(row(f"s{n}", n + 1, key=f"nightly/{n}", second=n))
    page = await store.rows(TENANT, Filter(key_prefix="nightly/"))
    assert ([found.session for found in page.rows], page.partial) == (["s2", "s1", "s0"], True)
    assert not (await store.rows(TENANT, Filter(key_prefix="nightly/4"))).partial
    assert not (await store.rows(TENANT)).partial


async def test_a_listing_of_another_tenant_is_empty(store: Store) -> None:
    await store.save_row(row("s1", 1, key="k"))
    assert (await store.rows("other")).rows == []
    assert (await store.rows("other", Filter(key="k"))).rows == []


async def test_a_snapshot_is_stored_only_over_the_header_that_was_read(store: Store) -> None:
    async def save(value: bytes, replacing: bytes | None) -> bool:
        return await store.save_snapshot(TENANT, "s1", "session", 1, value, replacing=replacing)

    assert await save(b"h1\nold", None)
    assert await save(b"h1\nold", None)  # its own retry
    assert not await save(b"h2\nnew", None)
    assert not await save(b"h3\nnew", b"h2\n")
    assert await save(b"h2\nnew", b"h1\n")
    assert await store.snapshot(TENANT, "s1", "session", 1) == b"h2\nnew"
    assert await store.snapshot(TENANT, "s1", "session", 2) is None
    assert await store.snapshot(TENANT, "s1", "mine", 1) is None


async def test_a_purged_session_is_gone_and_no_late_projector_revives_it(
    store: Store, raw: "redis.Redis"
) -> None:
    old = row("s1", 5, key="k", labels={"job": "a"})
    await store.save_row(old)
    await store.save_snapshot(TENANT, "s1", "session", 1, b"h\nstate", replacing=None)
    await store.purge(TENANT, "s1", sequence=9)
    await store.purge(TENANT, "s1", sequence=9)
    assert not (await store.save_row(row("s1", 8, key="k"))).written
    assert not await store.save_snapshot(TENANT, "s1", "session", 1, b"h\nx", replacing=None)
    assert await store.row(TENANT, "s1") is None
    assert await store.snapshot(TENANT, "s1", "session", 1) is None
    assert await listed(store) == await listed(store, Filter(key="k")) == []
    (left,) = [key async for key in raw.scan_iter("*")]
    assert left == f"flightlog:session:{{{TENANT}.s1}}:purged".encode()
    assert await raw.get(left) == b"9"
    assert 86_000 < await raw.ttl(left) <= 86_400


async def test_a_projector_that_saw_the_row_before_a_purge_does_not_revive_it(
    store: Store, raw: "redis.Redis"
) -> None:
    await store.save_row(row("s1", 5))
    (seen,) = await store.look(TENANT, ["s1"])
    await store.purge(TENANT, "s1", sequence=9)
    assert not (await store.save_row(row("s1", 8), seen=seen)).written
    assert len([key async for key in raw.scan_iter("*")]) == 1


async def test_a_row_written_while_its_session_is_purged_is_taken_back(
    store: Store, raw: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store._put

    async def purged_first(*args: Any) -> bool:
        monkeypatch.setattr(store, "_put", put)
        await store.purge(TENANT, "s1", sequence=9)
        return await put(*args)

    monkeypatch.setattr(store, "_put", purged_first)
    assert not (await store.save_row(row("s1", 8, key="k"))).written
    assert len([key async for key in raw.scan_iter("*")]) == 1


async def test_forks_and_what_is_damaged_are_found_by_an_index(store: Store) -> None:
    await store.save_row(row("s1", 1, lineage={"forked_from": {"session": "s0", "seq": 4}}))
    await store.save_row(row("s2", 2, lineage={"parent": {"session": "s0"}}))
    assert await listed(store, Filter(fork_of="s0")) == ["s1"]
    assert await listed(store, Filter(parent="s0")) == ["s2"]
    await store.note_damage(TENANT, "s1", "two events are gone")
    await store.note_damage(TENANT, "none", "two events are gone")
    assert await listed(store, Filter(damaged=True)) == ["s1"]
    assert await listed(store, Filter(damaged=False)) == ["s2"]


async def test_a_purged_session_leaves_no_key_to_its_forks_and_children(
    store: Store, raw: "redis.Redis"
) -> None:
    await store.save_row(row("s0", 1))
    await store.save_row(row("s1", 2, lineage={"forked_from": {"session": "s0", "seq": 4}}))
    await store.save_row(row("s2", 3, lineage={"parent": {"session": "s0"}}))
    await store.purge(TENANT, "s0", sequence=9)
    left = [key async for key in raw.scan_iter("*s0*")]
    assert left == [b"flightlog:session:{acme.s0}:purged"]
    for seq in (4, 5):
        await store.save_row(row("s1", seq, second=seq, lineage=forked("s0")))
        assert await listed(store, Filter(fork_of="s0")) == ["s1"]
    assert await listed(store, Filter(parent="s0")) == ["s2"]
    for session in ("s1", "s2"):
        await store.purge(TENANT, session, sequence=9)
    assert {key async for key in raw.scan_iter("*")} == {
        b"flightlog:session:{acme.%s}:purged" % each for each in (b"s0", b"s1", b"s2")
    }


def forked(source: str) -> dict[str, Any]:
    return {"forked_from": {"session": source, "seq": 4}}


async def test_many_forks_are_listed_newest_first_and_in_pages_once(store: Store) -> None:
    sessions = [f"s{at:04d}" for at in range(1_100)]
    for at, session in enumerate(sessions):
        source = "s0" if at % 11 else "s"  # its name begins as the other's
        await store.save_row(row(session, 1, second=at % 3, lineage=forked(source)))
    wanted = [(at % 3, each) for at, each in enumerate(sessions) if at % 11]
    found, after = list[str](), None
    while True:
        page = await store.rows(TENANT, Filter(fork_of="s0"), before=after, limit=70)
        found += [each.session for each in page.rows]
        if (after := page.after) is None:
            break
    assert found == [session for _, session in sorted(wanted, reverse=True)]
    assert len(await listed(store, Filter(fork_of="s"), limit=1_000)) == 100


async def test_what_the_recorder_found_stays_until_it_finds_otherwise(store: Store) -> None:
    await store.save_row(row("s1", 1))
    (seen,) = await store.look(TENANT, ["s1"])
    await store.note_damage(TENANT, "s1", "two events are gone")
    assert (await store.save_row(row("s1", 2), seen=seen)).written
    found = await store.row(TENANT, "s1")
    assert found is not None
    assert (found.read_to, found.trouble) == (2, "two events are gone")
    await store.note_damage(TENANT, "s1", None)
    assert await listed(store, Filter(damaged=True)) == []


async def test_garbage_under_our_keys_is_absent_and_is_replaced(
    store: Store, raw: "redis.Redis"
) -> None:
    for session, garbage in enumerate([b"\xff\x00", b"{}", b'{"is":"row"}', b"[1]", b""]):
        await raw.set(f"flightlog:tenant:{{{TENANT}}}:row:s{session}", garbage)
        assert await store.row(TENANT, f"s{session}") is None
        assert (await store.save_row(row(f"s{session}", 1))).written
    assert len(await listed(store)) == 5


async def test_values_of_another_type_under_our_keys_are_absent_and_are_replaced(
    store: Store, raw: "redis.Redis"
) -> None:
    await store.save_row(row("s1", 1, key="k"))
    await store.save_snapshot(TENANT, "s1", "session", 1, b"h\nstate", replacing=None)
    await Floors(store, "FLIGHTLOG_0").set_aside(TENANT, "s1")
    floors = Floors(store, "FLIGHTLOG_0", replica="r1")
    assert await floors.claim()
    assert await floors.create(Floor("g", 1))
    for key in [key async for key in raw.scan_iter("*")]:
        kind = await raw.type(key)
        await raw.delete(key)
        await (raw.lpush(key, "x") if kind != b"list" else raw.set(key, "x"))
    assert await store.row(TENANT, "s1") is None
    assert await store.snapshot(TENANT, "s1", "session", 1) is None
    assert await listed(store) == await listed(store, Filter(key="k")) == []
    assert await floors.floor() is None
    assert await floors.aside() == []
    assert (await store.save_row(row("s1", 1, key="k"))).written
    assert await store.save_snapshot(TENANT, "s1", "session", 1, b"h\nstate", replacing=None)
    await floors.set_aside(TENANT, "s1")
    assert await floors.aside() == [(TENANT, "s1")]
    assert await listed(store) == await listed(store, Filter(key="k")) == ["s1"]


class Emptied(Store):
    """A real store that is emptied right before the next plain value is read."""

    empties = False

    async def value(self, key: str) -> bytes | None:
        if self.empties:
            await self._client.flushall()
        return await super().value(key)


async def test_no_floor_is_set_in_a_redis_that_was_emptied_meanwhile(
    redis_url: str,
) -> None:
    store = Emptied.connect(redis_url)
    assert isinstance(store, Emptied)
    floors = Floors(store, "FLIGHTLOG_0", replica="r1")
    assert await floors.claim()
    assert await floors.create(Floor("g", 5))
    store.empties = True
    assert not await floors.create(Floor("h", 6))
    store.empties = False
    assert await floors.floor() is None
    await store.close()


async def test_a_floor_is_raised_only_from_the_value_that_was_seen(store: Store) -> None:
    floors = Floors(store, "FLIGHTLOG_0", replica="r1")
    assert await floors.floor() is None
    assert not await floors.raise_to(Floor("g", 5), expected=Floor("g", 1))
    assert not await floors.create(Floor("g", 1))  # without a rebuild
    assert await floors.claim()
    assert await floors.create(Floor("g", 1))
    assert await floors.raise_to(Floor("g", 5), expected=Floor("g", 1))
    assert not await floors.raise_to(Floor("g", 9), expected=Floor("g", 1))
    assert await floors.floor() == Floor("g", 5)


async def test_one_replica_at_a_time_holds_a_rebuild_and_it_shows(store: Store) -> None:
    one, two = (Floors(store, "FLIGHTLOG_0", replica=name) for name in ("r1", "r2"))
    assert await rebuilding(store, ["FLIGHTLOG_0"]) == ["FLIGHTLOG_0"]
    assert await one.claim()
    assert await one.claim()
    assert not await two.claim()
    assert not await two.create(Floor("h", 1))
    assert await one.create(Floor("g", 1))
    await two.release()
    assert await rebuilding(store, ["FLIGHTLOG_0"]) == ["FLIGHTLOG_0"]
    await one.release()
    assert not await one.keep()
    assert await rebuilding(store, ["FLIGHTLOG_0"]) == []
    assert await two.claim()
    assert await rebuilding(store, ["FLIGHTLOG_0"]) == ["FLIGHTLOG_0"]


async def test_an_echo_that_redis_forgot_is_noticed(store: Store, raw: "redis.Redis") -> None:
    floors = Floors(store, "FLIGHTLOG_0", replica="r1")
    assert await floors.echo(b"1", expected=None)
    assert await floors.echo(b"2", expected=b"1")
    assert await floors.echo(b"2", expected=b"1")  # its own retry
    await raw.flushall()
    assert not await floors.echo(b"3", expected=b"2")
    assert await floors.echoed() is None


async def test_a_redis_that_is_down_is_one_clear_error_and_works_again_after(
    redis_server: Server,
) -> None:
    store = Store.connect(redis_server.url)
    await store.save_row(row("s1", 1))
    redis_server.kill()
    with pytest.raises(StoreUnavailable, match=str(redis_server.port)):
        await store.row(TENANT, "s1")
    redis_server.start()
    assert (await store.save_row(row("s1", 2))).written
    await store.close()


async def test_a_redis_that_does_not_answer_is_given_up_in_time(redis_server: Server) -> None:
    store = Store.connect(redis_server.url, timeout=0.2)
    await store.ping()
    redis_server.pause()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.row(TENANT, "s1")
    assert time.monotonic() - began < 2
    redis_server.resume()
    await store.close()


async def test_a_full_redis_is_one_clear_error_without_the_value(make_redis: MakeRedis) -> None:
    store = Store.connect(make_redis(extra="maxmemory 3mb").url)

    async def fill() -> None:
        for n in range(100):
            value = SECRET.encode() * 10_000
            await store.save_snapshot(TENANT, f"s{n}", "session", 1, value, replacing=None)

    with pytest.raises(StoreUnavailable) as caught:
        await fill()
    assert SECRET not in str(caught.value)
    await store.close()


async def test_a_wrong_password_is_not_permitted_and_never_printed(redis_server: Server) -> None:
    store = Store.connect(f"redis://:{SECRET}@127.0.0.1:{redis_server.port}/0")
    with pytest.raises(NotPermitted) as caught:
        await store.ping()
    assert SECRET not in str(caught.value)
    await store.close()


@pytest.mark.parametrize("url", [f"http://{SECRET}", f"redis://h:{SECRET}", "", SECRET])
def test_a_url_that_is_none_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        Store.connect(url)
    assert SECRET not in str(caught.value)


async def test_a_server_that_is_no_redis_is_one_clear_error(nats_server: Server) -> None:
    store = Store.connect(f"redis://127.0.0.1:{nats_server.port}/0", timeout=0.5)
    with pytest.raises(StoreUnavailable):
        await store.ping()
    await store.close()


async def test_a_prefix_keeps_apart_who_shares_a_redis(redis_url: str) -> None:
    ours, theirs = Store.connect(f"{redis_url}?prefix=ours"), Store.connect(redis_url)
    await ours.save_row(row("s1", 1, key="k"))
    await ours.save_snapshot(TENANT, "s1", "session", 1, b"h\nx", replacing=None)
    assert await Floors(ours, "FLIGHTLOG_0", replica="r1").claim()
    assert (await listed(ours), await listed(theirs)) == (["s1"], [])
    assert await theirs.snapshot(TENANT, "s1", "session", 1) is None
    assert await Floors(theirs, "FLIGHTLOG_0", replica="r2").claim()
    async with redis.Redis.from_url(redis_url) as raw:
        keys = [key.decode() async for key in raw.scan_iter(match="*")]
    assert {key.partition(":")[0] for key in keys} == {"ours", "flightlog"}
    assert [key for key in keys if key.startswith("flightlog:")] == [
        "flightlog:stream:{FLIGHTLOG_0}:rebuilding"
    ]
    await ours.close()
    await theirs.close()


@pytest.mark.parametrize("prefix", ["", "a:b", "a*", "{a}", "a" * 81])
async def test_a_prefix_that_could_be_another_one_is_refused(redis_url: str, prefix: str) -> None:
    with pytest.raises(StoreUnavailable):
        Store.connect(f"{redis_url}?prefix={prefix}")


async def test_a_clustered_redis_serves(make_redis: MakeRedis) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        bus_port = free.getsockname()[1]
    server = make_redis(extra=f"cluster-enabled yes\ncluster-port {bus_port}")
    async with redis.Redis.from_url(server.url) as client:
        command: Any = client.execute_command
        await command("CLUSTER ADDSLOTSRANGE 0 16383")
        while (await command("CLUSTER INFO"))["cluster_state"] != "ok":
            await asyncio.sleep(0.01)
    store = Store.connect(server.url.replace("redis://", "redis+cluster://"))
    await store.save_row(row("s1", 1, key="k", labels={"job": "a"}))
    assert await store.save_snapshot(TENANT, "s1", "session", 1, b"h\nx", replacing=None)
    assert await listed(store, Filter(labels={"job": "a"})) == ["s1"]
    floors = Floors(store, "FLIGHTLOG_0", replica="r1")
    assert await floors.claim()
    assert await floors.create(Floor("g", 1))
    [primary] = await store.vitals()
    assert (primary.policy, abs(primary.ahead) < 10) == ("noeviction", True)
    assert await store.excess() == ["CONFIG", "DEL of any key"]
    await store.purge(TENANT, "s1", sequence=2)
    assert await listed(store) == []
    await store.close()


def test_a_row_is_small() -> None:
    typical = row(
        "s" * 37, 10**9, key="nightly/2026-05-06", status="running", labels={"job": "nightly"}
    )
    assert len(msgspec.json.encode(typical)) < 400
