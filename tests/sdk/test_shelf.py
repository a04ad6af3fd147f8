"""Snapshots in pieces on a real Redis or Valkey: nothing is left over, nothing is ever missing."""

import asyncio
from collections.abc import AsyncIterator
from functools import cache
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
    fields: dict[bytes, bytes] = await raw.hgetall(KEY)
    head = fields.pop(HEAD, None)
    assert all(field.startswith(HEAD + b"/") for field in fields)
    return head, {field.partition(b"/")[2].decode(): value for field, value in fields.items()}


def reached(roots: tuple[str, ...], pieces: dict[str, bytes]) -> set[str]:
    """What can be reached from there; each piece must be there and be what its name says."""
    found, due = set[str](), list(roots)
    while due:
        name = due.pop()
        value = piece.opened(name, pieces.get(name))
        assert value is not None, "a piece is missing"
        found.add(name)
        due += [] if is_leaf(name) else children(value)
    return found


async def check(raw: Any) -> bool:
    """Whether a whole snapshot is there; whatever is there must be spoken of, and all of that."""
    head, pieces = await stored(raw)
    if head is None:
        assert not pieces
        return False
    adding, below = shelf._parted(head)
    found = snapshot.read(below)
    assert found is not None or below == b""
    spoken = reached(found.cut.roots if found else (), pieces)
    if below == head:
        assert pieces.keys() == spoken
    else:
        assert pieces.keys() <= spoken | set(adding)
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
            await raw.hset(KEY, mapping={b"session:1": b"old", b"session:1/00": b"old"})
    held = await shelf_of(store).load()
    assert held.snapshot is None
    assert await shelf_of(store).save(second, held)
    assert await check(raw)


async def test_another_projections_snapshots_are_left_alone(store: Store, raw: Any) -> None:
    fields = {"session:mine:1": b"a", "session:mine:1/00": b"b", "other:1": b"c", "session:3": b"d"}
    await raw.hset(KEY, mapping=fields)
    await raw.hset(KEY, HEAD, b"garbage")
    held = await shelf_of(store).load()
    assert await shelf_of(store).save(histories()[0][0], held)
    assert {name: await raw.hget(KEY, name) for name in fields} == fields


async def test_a_purge_takes_all_pieces_along_and_none_comes_back(store: Store, raw: Any) -> None:
    first, second = histories()[0][8:10]
    assert await shelf_of(store).save(first, shelf.NOTHING)
    held = await shelf_of(store).load()
    await store.purge(TENANT, ID, sequence=9)
    assert not await shelf_of(store).save(second, held)
    keys = {key async for key in raw.scan_iter("*")}
    assert {key.rpartition(b":")[2] for key in keys} == {b"purged", b"s1"}
    assert not await raw.exists(KEY)


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
        assert all(isinstance(each, bool | StoreUnavailable) for each in done)
        if (await shelf_of(store).load()).snapshot is None:
            await shelf_of(store).save(chance.choice(histories()[0]), await shelf_of(store).load())
        saved += await check(raw)
    assert saved == 20
    for each in replicas:
        await each.close()


async def damage(raw: Any, chance: Random) -> None:
    fields: list[bytes] = sorted(await raw.hkeys(KEY))
    if not fields:
        return
    field = chance.choice([HEAD, chance.choice(fields)])
    if chance.random() < 0.5:
        await raw.hdel(KEY, field)
    else:
        await raw.hset(KEY, field, b"\0garbage")
