"""Snapshots in pieces on a real Redis or Valkey: nothing is left over, nothing is ever missing."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest
import redis.asyncio as redis

from flightlog import snapshot
from flightlog.cache import piece, shelf
from flightlog.cache.piece import children, is_leaf
from flightlog.cache.shelf import Held, Shelf
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.snapshot import SESSION, Snapshot
from flightlog.state import SessionState
from tests.sdk.tale import Tale, begun

TENANT, ID = "acme", "s1"
KEY = f"flightlog:session:{{{TENANT}.{ID}}}:snapshots"
HEAD = f"{SESSION.name}:{SESSION.version}".encode()


@pytest.fixture
async def store(redis_url: str) -> AsyncIterator[Store]:
    connected = Store.connect(redis_url)
    yield connected
    await connected.close()


@pytest.fixture
async def raw(redis_url: str) -> AsyncIterator[Any]:
    async with redis.Redis.from_url(redis_url) as client:
        yield client


def shelf_of(store: Store) -> Shelf:
    return Shelf(store, TENANT, ID, SESSION.name, SESSION.version)


def taken(state: SessionState) -> Snapshot:
    return Snapshot(
        projection=SESSION.name,
        version=SESSION.version,
        schema=1,
        seq=state.seq,
        sequence=state.seq,
        part="live",
        read_to=state.seq,
        digest=state.digest or "",
        writers=state.writers,
        cut=snapshot.cut(SESSION, state),
    )


def grow(tale: Tale, count: int, chance: Random) -> None:
    """Events of all that makes a state long, now and then a large one or a new context."""
    for at in range(count):
        text = "".join(chance.choices("abcdefgh ", k=6_000 if chance.random() < 0.03 else 60))
        match chance.randrange(20):
            case 0 | 1 | 2 | 3:
                tale.add("value_recorded", {"name": f"{tale.state.seq} {at}", "value": text})
            case 4:
                tale.user("again", once=f"{tale.state.seq} {at}")
            case 5 if chance.random() < 0.05:
                tale.add("compact", {"summary": text, "keep_from": max(1, tale.state.seq - 50)})
            case 6:
                tale.add("checkpoint", {"label": "l", "data": text})
            case _:
                tale.user(text)


@cache
def histories() -> tuple[list[Snapshot], list[Snapshot]]:
    """Snapshots of one history and of another that leaves it half way."""
    both: list[list[Snapshot]] = []
    for story in (1, 2):
        chance, tale, found = Random(7), begun(), list[Snapshot]()
        for part in range(16):
            grow(tale, 100, chance if part < 8 else Random(part * story))
            found.append(taken(tale.state))
        both.append(found)
    return both[0], both[1]


async def stored(raw: Any) -> tuple[bytes | None, dict[str, bytes]]:
    """The last head, and the pieces that are not kept."""
    fields: dict[bytes, bytes] = await raw.hgetall(KEY)
    head = fields.pop(HEAD, None)
    assert all(field[len(HEAD) :][:1] in (b"/", b"@") for field in fields)
    loose = {field: value for field, value in fields.items() if field.startswith(HEAD + b"/")}
    return head, {field.partition(b"/")[2].decode(): value for field, value in loose.items()}


async def kept(raw: Any) -> tuple[dict[int, bytes], dict[str, bytes]]:
    """The heads that are kept, by their seq, and the pieces."""
    fields: dict[bytes, bytes] = await raw.hgetall(KEY)
    behind = {f[len(HEAD) + 1 :]: v for f, v in fields.items() if f.startswith(HEAD + b"@")}
    listed = behind.pop(b"", b"").split()
    pieces = {name[1:].decode(): behind.pop(name) for name in list(behind) if name[:1] == b"/"}
    assert sorted(listed) == sorted(behind)
    return {int(seq): head for seq, head in behind.items()}, pieces


def reached(roots: tuple[str, ...], pieces: dict[str, bytes]) -> set[str]:
    """What can be reached from there; each piece must be there and be what its name says."""
    found, due = set[str](), list(roots)
    while due:
        name = due.pop()
        assert name in pieces, "a piece is missing"
        assert piece.holds(name, pieces[name])
        raw = piece.Stored(pieces)[name]
        assert hashlib.sha256(raw).hexdigest() == name.removeprefix("+")
        found.add(name)
        due += [] if is_leaf(name) else children(raw)
    return found


async def check(raw: Any) -> bool:
    """Whether a whole snapshot is there; whatever is there must be spoken of, and all of that."""
    head, loose = await stored(raw)
    heads, stay = await kept(raw)
    spoken_of = set[str]()
    for seq, each in heads.items():
        found = snapshot.read(each)
        assert found is not None
        assert found.seq == seq
        spoken_of |= reached(found.cut.roots, stay)
    assert stay.keys() == spoken_of
    if head is None:
        assert not loose
        return False
    adding, below = shelf._parted(head)
    found = snapshot.read(below)
    assert found is not None or below == b""
    spoken = reached(found.cut.roots if found else (), stay | loose)
    if below == head:
        assert loose.keys() <= spoken <= loose.keys() | stay.keys()
    else:
        assert loose.keys() <= spoken | set(adding)
    return found is not None


class Dying(Store):
    """A store whose connection breaks at the n-th write, before or after Redis took it."""

    breaks_at = 0
    after = False
    writes = 0

    async def save_snapshot(self, *args: Any, **options: Any) -> bool:
        self.writes += 1
        if self.writes == self.breaks_at and not self.after:
            raise StoreUnavailable("here", "the test says so")
        done = await super().save_snapshot(*args, **options)
        if self.writes == self.breaks_at:
            raise StoreUnavailable("here", "the test says so")
        return done


async def test_a_snapshot_comes_back_with_every_piece(store: Store, raw: Any) -> None:
    held = shelf.NOTHING
    for each in histories()[0]:
        assert await shelf_of(store).save(each, held)
        assert await check(raw)
        held = await shelf_of(store).load()
        assert held.snapshot is not None
        state = snapshot.join(SESSION, held.snapshot.cut)
        assert SESSION.encode(state) == SESSION.encode(snapshot.join(SESSION, each.cut))
        assert snapshot.write(taken(state)) == snapshot.write(each)


async def test_what_is_there_already_is_not_written_again(store: Store, raw: Any) -> None:
    tale = begun()
    held, written = shelf.NOTHING, list[int]()
    for _ in range(40):
        for _ in range(100):
            tale.user("x" * 1000)
        before = (await stored(raw))[1]
        assert await shelf_of(store).save(taken(tale.state), held)
        held = await shelf_of(store).load()
        head, pieces = await stored(raw)
        new = [pieces[name] for name in pieces.keys() - before.keys()]
        written.append(len(head or b"") + sum(map(len, new)))
        assert len(new) <= 4
    assert max(written[30:]) < 1.2 * max(written[:10])


async def test_a_huge_snapshot_is_written_in_parts_and_read_as_it_was_until_the_last(
    store: Store, raw: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "WRITE", 2_000)
    first, second = histories()[0][2], histories()[0][9]
    assert await shelf_of(store).save(first, shelf.NOTHING)
    held, breaks_at = await shelf_of(store).load(), 1
    while True:
        dying = Dying.connect(redis_url)
        assert isinstance(dying, Dying)
        dying.breaks_at = breaks_at
        try:
            assert await shelf_of(dying).save(second, held)
            break
        except StoreUnavailable:
            await check(raw)
            held = await shelf_of(store).load()
            assert held.snapshot is not None
            assert held.snapshot.seq == first.seq
        finally:
            await dying.close()
        breaks_at += 1
    assert breaks_at > 10
    assert await check(raw)
    head, pieces = await stored(raw)
    assert pieces.keys() == set(second.cut.pieces)
    assert head == snapshot.write(second)


async def test_a_write_that_reaches_redis_once_more_and_late_removes_nothing(
    redis_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Repeating(Store):
        writes: ClassVar[list[tuple[Any, dict[str, Any]]]] = []

        async def save_snapshot(self, *args: Any, **options: Any) -> bool:
            self.writes.append((args, options))
            for early, told in self.writes:
                await super().save_snapshot(*early, **told)
            return await super().save_snapshot(*args, **options)

    monkeypatch.setattr(shelf, "WRITE", 2_000)
    repeating = Repeating.connect(redis_url)
    assert await shelf_of(repeating).save(histories()[0][9], shelf.NOTHING)
    await repeating.close()
    assert await check(raw)


async def test_two_that_add_the_same_over_different_snapshots_do_not_take_turns(
    store: Store, raw: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Store):
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def save_snapshot(self, *args: Any, **options: Any) -> bool:
            done = await super().save_snapshot(*args, **options)
            self.begun.set()
            await self.goes_on.wait()
            return done

    monkeypatch.setattr(shelf, "WRITE", 2_000)
    one, two, three = (taken(of_one_message(text)) for text in "abc")
    assert await shelf_of(store).save(one, shelf.NOTHING)
    slow = Slow.connect(redis_url)
    assert isinstance(slow, Slow)
    adding = asyncio.create_task(shelf_of(slow).save(three, await shelf_of(store).load()))
    await slow.begun.wait()
    assert await shelf_of(store).save(two, await shelf_of(store).load())
    dying = Dying.connect(redis_url)
    assert isinstance(dying, Dying)
    dying.breaks_at = 2
    with pytest.raises(StoreUnavailable):
        await shelf_of(dying).save(three, await shelf_of(store).load())
    slow.goes_on.set()
    assert not await adding
    await check(raw)
    await slow.close()
    await dying.close()


def of_one_message(text: str) -> SessionState:
    tale = begun()
    for at in range(3):
        tale.user(f"{at}" + "".join(Random(text).choices("0123456789abcdef", k=9_000)))
    return tale.state


@pytest.mark.parametrize("damage", ["head", "no head", "missing", "altered", "swapped", "earlier"])
async def test_what_does_not_verify_is_no_snapshot_and_goes_with_the_next_one(
    store: Store, raw: Any, damage: str
) -> None:
    first, second = histories()[0][9:11]
    assert await shelf_of(store).save(first, shelf.NOTHING)
    names = sorted((await stored(raw))[1])
    fields = [HEAD + b"/" + name.encode() for name in names]
    match damage:
        case "head":
            await raw.hset(KEY, HEAD, b"garbage\n")
        case "no head":
            await raw.hdel(KEY, HEAD)
        case "missing":
            await raw.hdel(KEY, fields[7])
        case "altered":
            await raw.hset(KEY, fields[7], b"\0[]")
        case "swapped":
            other = await raw.hget(KEY, fields[8])
            await raw.hset(KEY, fields[7], other)
        case _:
            await raw.delete(KEY)
            old = [b"session:1", b"session:1/00", b"session:1@", b"session:1@7", b"session:1@/00"]
            await raw.hset(KEY, mapping=dict.fromkeys(old, b"old"))
    held = await shelf_of(store).load()
    assert held.snapshot is None
    assert await shelf_of(store).save(second, held)
    assert await check(raw)


async def test_another_projections_snapshots_are_left_alone(store: Store, raw: Any) -> None:
    later = f"{SESSION.name}:{SESSION.version + 1}"
    fields = {"session:mine:1": b"a", "session:mine:1/00": b"b", "other:1": b"c", later: b"d"}
    fields |= {"session:mine:1@": b"7", "session:mine:1@7": b"e", f"{later}@/00": b"f"}
    await raw.hset(KEY, mapping=fields)
    await raw.hset(KEY, HEAD, b"garbage")
    held = await shelf_of(store).load()
    assert await shelf_of(store).save(histories()[0][0], held)
    assert {name: await raw.hget(KEY, name) for name in fields} == fields


async def test_a_purge_takes_all_pieces_along_and_none_comes_back(store: Store, raw: Any) -> None:
    first, second = histories()[0][8:10]
    held = await shelf_of(store).save(first, shelf.NOTHING)
    assert held is not None
    assert await shelf_of(store).keep(held)
    await store.purge(TENANT, ID, sequence=9)
    assert not await shelf_of(store).save(second, held)
    assert not await shelf_of(store).keep(held)
    keys = {key async for key in raw.scan_iter("*")}
    assert {key.rpartition(b":")[2] for key in keys} == {b"purged"}


async def test_a_snapshot_that_is_kept_stays_as_it_was_whatever_comes_later(
    store: Store, raw: Any
) -> None:
    held, keeping = shelf.NOTHING, list[Snapshot]()
    for at, each in enumerate(histories()[0]):
        saved = await shelf_of(store).save(each, held)
        assert saved is not None
        held = saved
        if at % 3 == 0:
            keeping.append(each)
            held = await shelf_of(store).keep(saved) or shelf.NOTHING
            assert await shelf_of(store).keep(saved)  # its own retry
        assert await check(raw)
        loaded = await shelf_of(store).load()
        assert (loaded.value, loaded.loose) == (held.value, held.loose)
    for earlier, later in pairwise(keeping):
        for seq in (earlier.seq, later.seq - 1):
            found = await shelf_of(store).near(seq)
            assert found is not None
            assert snapshot.write(found) == snapshot.write(earlier)
            state = snapshot.join(SESSION, found.cut)
            assert SESSION.encode(state) == SESSION.encode(snapshot.join(SESSION, earlier.cut))
            head = await shelf_of(store).head_near(seq)
            assert head is not None
            assert (head.seq, head.cut.pieces) == (earlier.seq, {})
    assert await shelf_of(store).near(keeping[0].seq - 1) is None


async def test_a_kept_snapshot_costs_its_head_and_what_came_since_the_one_before(
    store: Store, raw: Any
) -> None:
    tale, held, cost = begun(), shelf.NOTHING, list[int]()
    for _ in range(40):
        for _ in range(100):
            tale.user("".join(Random(tale.state.seq).choices("abcdefgh ", k=1000)))
        saved = await shelf_of(store).save(taken(tale.state), held)
        assert saved is not None
        before = await kept(raw)
        held = await shelf_of(store).keep(saved) or shelf.NOTHING
        after = await kept(raw)
        new = [after[1][name] for name in after[1].keys() - before[1].keys()]
        cost.append(len(after[0][tale.state.seq]) + sum(map(len, new)))
        assert held.loose == frozenset()
    assert max(cost[30:]) < 1.2 * max(cost[:10])


@pytest.mark.parametrize("broken", ["head", "no head", "missing", "altered", "list"])
async def test_a_kept_snapshot_that_does_not_verify_is_passed_over_for_an_earlier_one(
    store: Store, raw: Any, broken: str
) -> None:
    held, three = shelf.NOTHING, histories()[0][3:6]
    for each in three:
        saved = await shelf_of(store).save(each, held)
        assert saved is not None
        held = await shelf_of(store).keep(saved) or shelf.NOTHING
    last = HEAD + f"@{three[2].seq}".encode()
    [own, *_] = sorted(set(three[2].cut.pieces) - set(three[1].cut.pieces))
    match broken:
        case "head":
            await raw.hset(KEY, last, b"garbage\n")
        case "no head":
            await raw.hdel(KEY, last)
        case "missing":
            await raw.hdel(KEY, HEAD + b"@/" + own.encode())
        case "altered":
            await raw.hset(KEY, HEAD + b"@/" + own.encode(), b"\0[]")
        case _:
            await raw.hset(KEY, HEAD + b"@", b"garbage 7 " + str(three[1].seq).encode())
    found = await shelf_of(store).near(three[2].seq)
    assert found is not None
    assert found.seq == three[1].seq


async def test_what_is_saved_over_garbage_forgets_what_was_kept(store: Store, raw: Any) -> None:
    saved = await shelf_of(store).save(histories()[0][3], shelf.NOTHING)
    assert saved is not None
    assert await shelf_of(store).keep(saved)
    unread = Held(value=saved.value)
    assert await shelf_of(store).save(histories()[1][9], unread)
    assert await kept(raw) == ({}, {})
    assert await check(raw)


async def test_only_the_snapshot_that_is_there_is_kept(store: Store, raw: Any) -> None:
    first, second = histories()[0][3:5]
    early = await shelf_of(store).save(first, shelf.NOTHING)
    assert early is not None
    assert await shelf_of(store).save(second, early)
    assert await shelf_of(store).keep(early) is None
    assert await shelf_of(store).keep(shelf.NOTHING) is None
    assert await kept(raw) == ({}, {})


@pytest.mark.parametrize("seed", range(12))
async def test_replicas_that_race_break_down_and_disagree_leave_nothing_over_and_miss_nothing(
    store: Store,
    raw: Any,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(shelf, "WRITE", chance.choice([1_000, 20_000, 4 << 20]))
    replicas = [Dying.connect(redis_url) for _ in range(3)]
    saved = 0
    for _ in range(20):
        seen: list[Held] = [await shelf_of(store).load() for _ in replicas]
        for each in replicas:
            assert isinstance(each, Dying)
            each.writes, each.after = 0, chance.random() < 0.5
            each.breaks_at = chance.choice([0, 0, chance.randrange(1, 8)])
        if chance.random() < 0.2:
            await damage(raw, chance)
        racing = [
            shelf_of(each).save(chance.choice(histories()[chance.randrange(2)]), held)
            for each, held in zip(replicas, seen, strict=True)
        ]
        done = await asyncio.gather(*racing, return_exceptions=True)
        assert all(isinstance(each, Held | StoreUnavailable | None) for each in done)
        if (await shelf_of(store).load()).snapshot is None:
            await shelf_of(store).save(chance.choice(histories()[0]), await shelf_of(store).load())
        if chance.random() < 0.5:
            now = await shelf_of(store).load()
            await shelf_of(store).keep(chance.choice([now, now, *seen]))
        saved += await check(raw)
    assert saved == 20
    for each in replicas:
        await each.close()


async def damage(raw: Any, chance: Random) -> None:
    fields = sorted(name for name in await raw.hkeys(KEY) if not name.startswith(HEAD + b"@"))
    if not fields:
        return
    field = chance.choice([HEAD, chance.choice(fields)])
    if chance.random() < 0.5:
        await raw.hdel(KEY, field)
    else:
        await raw.hset(KEY, field, b"\0garbage")
