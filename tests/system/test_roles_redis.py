"""Each role does its whole work with its user of Redis, which may do that and nothing else.

The users are those of the ACL file that `flightlog provision --tenant ... --output` writes.
"""

import functools
import hashlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from flightlog import Log, connect
from flightlog.bus import access
from flightlog.cache.place import Places
from flightlog.cache.store import Store
from flightlog.snapshot import SESSION
from flightlog.wire import subject as names
from flightlog_recorder.access import rights
from flightlog_recorder.access.role import Role
from flightlog_recorder.doctor import doctor
from flightlog_recorder.doctor.gather import Place
from tests import handed as hands
from tests.handed import BOSS, SECRET, Handed
from tests.handmade import chain
from tests.projector.conftest import spawn
from tests.recorder.command import Command
from tests.recorder.recorded import left_running, talk, write
from tests.scripted import until

TENANT = "acme"
FLEET = ("--tenant", TENANT, "--tenant", "globex", "--account", "fleet", "--subscriber", "mailer")
PREFIX = "flightlog.fleet"
PLACES = Places(PREFIX)
USERS: dict[Role, str] = {
    "harness": "acme-harness",
    "projector": "fleet-projector",
    "recorder": "fleet-recorder",
    "operator": "fleet-operator",
}

pytestmark = pytest.mark.timeout(60)  # services and commands are processes of their own


@pytest.fixture
def handed(tmp_path: Path) -> Generator[Handed]:
    with hands.running(tmp_path, FLEET) as made:
        yield made


@asynccontextmanager
async def boss(handed: Handed) -> AsyncGenerator[Log]:
    """One who may do anything, with the account's keys in Redis."""
    url = f"redis://{BOSS}:{SECRET}@127.0.0.1:{handed.redis.port}/0?prefix={PREFIX}"
    async with connect(nats=handed.boss("fleet"), redis=url, tenant=TENANT, provision=True) as log:
        yield log


@asynccontextmanager
async def whole_work(
    handed: Handed, role: Role, *, tries: Sequence[str] = ()
) -> AsyncGenerator[None]:
    """Nothing that is done in the block is refused, and all that the role may do is done.

    `tries` are commands that it means to be refused.
    """
    async with handed.raw() as admin:
        await admin.acl_log_reset()
        await admin.config_resetstat()
        yield
        done = {name.removeprefix("cmdstat_") for name in await admin.info("commandstats")}
        refused = [each["object"] for each in await admin.acl_log()]
    found = rights.rights(role, tenant=TENANT)
    assert found is not None
    assert sorted(refused) == sorted(tries)
    assert sorted(set(found.commands) - done) == []


async def test_a_harness_resumes_and_lists(handed: Handed) -> None:
    async with boss(handed) as log:
        done = await talk(log, key="done")
        async with log.session(key="nightly/1") as session:
            await session.user_message("x" * 50_000)
        await projected(handed, log, done, session.id)
    async with whole_work(handed, "harness"), handed.log("acme-harness") as log:
        async with log.session(key="nightly/1", on_live="refuse") as again:
            assert again.state.seq > session.state.seq
        assert len((await log.sessions()).rows) == 2
        assert [row.key for row in (await log.sessions(key="done")).rows] == ["done"]
        assert (await log.sessions(parent=done)).rows == []
        command = handed.command("acme-harness")
        for words in (("ls",), ("ls", "--key", "done"), ("show", done, "--tree")):
            assert done in await ran(command, *words)


async def test_a_harness_lists_its_own_tenants_sessions_alone(handed: Handed) -> None:
    async with boss(handed) as log:
        mine = await talk(log, key="done")
        await projected(handed, log, mine)
    command = handed.command("acme-harness")
    assert mine in await ran(command, "ls")
    other = await command("--tenant", "globex", "ls")
    assert other.code != 0
    assert "refused us" in other.err


async def projected(handed: Handed, log: Log, *sessions: str) -> None:
    """Let the projector do its work, and go; what it loaded into Redis is forgotten."""
    async with service(handed, "projector", "flightlog_projector"):
        for each in sessions:
            await until(functools.partial(is_listed, log, each), timeout=20)
    async with handed.raw() as admin:
        await admin.script_flush()


async def is_listed(log: Log, session: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.status != "running"


@asynccontextmanager
async def service(handed: Handed, role: Role, module: str, **more: str) -> AsyncGenerator[None]:
    child = await spawn(handed.program(USERS[role]) | more, module=module)
    try:
        yield
    finally:
        child.process.terminate()
        assert await child.process.wait() == 0, child.said


async def test_a_projector_fills_and_empties_the_catalog(handed: Handed) -> None:
    async with boss(handed) as log, handed.raw() as admin, whole_work(handed, "projector"):
        assert log.store is not None
        broken = names.mint()
        events = chain(3, session=broken)
        await write(log, broken, [events[0], events[2]])
        async with log.session(key="job") as session:
            await session.user_message("x" * 50_000)
        garbage = {f"{SESSION.name}:{SESSION.version}": "garbage"}
        await admin.hset(PLACES.snapshots(TENANT, session.id), mapping=garbage)
        aside = PLACES.stream("FLIGHTLOG_0", "aside")
        await admin.sadd(aside, f"{TENANT}.of-which-nothing-is-left")
        async with service(handed, "projector", "flightlog_projector"):
            await until(lambda: is_set_aside(log, broken), timeout=20)
            await until(lambda: members(admin, aside, f"{TENANT}.{broken}"), timeout=20)
            await until(lambda: has(log, session.id, "suspended"), timeout=20)
            async with log.session(key="job") as session:
                await session.end()
            await until(lambda: has(log, session.id, "completed"), timeout=20)
            await ran(handed.command("fleet-operator"), "purge", session.id, "--why", "a test")
            await until(lambda: is_gone(log, session.id), timeout=20)


async def has(log: Log, session: str, status: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.status == status


async def is_set_aside(log: Log, session: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.error is not None


async def members(client: Any, key: str, *wanted: str) -> bool:
    """Whether these, and no others, are in a set."""
    return {each.decode() for each in await client.smembers(key)} == set(wanted)


async def is_gone(log: Log, session: str) -> bool:
    assert log.store is not None
    return await log.store.row(TENANT, session) is None


async def ran(command: Command, *words: str) -> str:
    done = await command(*words)
    assert done.code == 0, (words, done)
    return done.out


async def test_a_recorder_marks_what_is_damaged_stalled_and_well_again(handed: Handed) -> None:
    async with boss(handed) as log, handed.raw() as admin:
        assert log.store is not None
        async with log.session(key="long") as well:
            await well.user_message("x" * 50_000)
        await projected(handed, log, well.id)
        stalled = await left_running(log)
        await log.store.note_damage(TENANT, well.id, "of yesterday")
        await admin.script_flush()
        await admin.set(PLACES.index(TENANT, "stalled"), "no index")
        async with (
            whole_work(handed, "recorder"),
            service(
                handed,
                "recorder",
                "flightlog_recorder.service",
                FLIGHTLOG_STALLED_AFTER="1",
                FLIGHTLOG_ROUND_PAUSE="0.1",
            ),
        ):
            await until(lambda: is_stalled(log, stalled), timeout=20)
            await until(lambda: is_well(log, well.id), timeout=20)


async def is_stalled(log: Log, session: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.stalled is not None


async def is_well(log: Log, session: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.damage is None


async def test_an_operator_lists_shows_and_verifies(handed: Handed) -> None:
    async with boss(handed) as log:
        done = await talk(log, key="done")
        async with log.session(key="long") as long:
            await long.user_message("x" * 50_000)
        await projected(handed, log, done, long.id)
    command = handed.command("fleet-operator")
    url = access.redis_url(environ=handed.environ("fleet-operator"))
    async with whole_work(handed, "operator", tries=("config|get", "del")):
        await ran(command, "ls")
        await ran(command, "ls", "--key", "done")
        await ran(command, "show", done, "--tree")
        await ran(command, "verify", "--all")
        await ran(command, "replay", long.id)
        await doctor.examine(Place(handed.access("fleet-operator"), redis=url))


FOREIGN = ("flightlog", "flightlog.globex", "flightlog.fleets", "fleet")
FORBIDDEN = [
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG GET *",
    "CONFIG SET maxmemory 1",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "DBSIZE",
    "MONITOR",
    "SHUTDOWN",
    "ACL LIST",
    "ACL SETUSER acme-harness +@all",
    "CLIENT LIST",
    "CLIENT KILL TYPE normal",
    "SELECT 1",
    "SWAPDB 0 1",
    "REPLICAOF NO ONE",
    "SCRIPT FLUSH",
    "FUNCTION LIST",
    "SUBSCRIBE x",
    "PUBLISH x y",
    "MODULE LIST",
    "SAVE",
    "EVAL return 0",
]
READS = ["GET {}", "MGET {}", "HGET {} f", "HMGET {} f", "ZREVRANGEBYSCORE {} 1 0", "DUMP {}"]
WRITES = [
    *("SET {} x", "DEL {}", "UNLINK {}", "HSET {} f x", "HDEL {} f", "ZADD {} 1 x", "ZREM {} x"),
    *("SADD {} x", "SREM {} x", "EXPIRE {} 1", "RENAME {} {}", "RESTORE {} 0 x"),
]


def others(role: Role) -> list[str]:
    """Keys that are none of the role's business."""
    found = [key for prefix in FOREIGN for key in keys_of(Places(prefix), TENANT)]
    if role == "harness":
        found += [*of_sessions(PLACES, "globex"), PLACES.stream("FLIGHTLOG_0", "aside")]
    return found


def keys_of(places: Places, tenant: str) -> list[str]:
    return [*of_sessions(places, tenant), places.stream("FLIGHTLOG_0", "floor")]


def of_sessions(places: Places, tenant: str) -> list[str]:
    return [
        places.snapshots(tenant, "s1"),
        places.row(tenant, "s1"),
        places.index(tenant, "all"),
    ]


READ_ONLY: dict[Role, list[str]] = {
    "harness": [*keys_of(PLACES, TENANT), PLACES.stream("FLIGHTLOG_0", "rebuilding")],
    "operator": keys_of(PLACES, TENANT),
    "recorder": [PLACES.snapshots(TENANT, "s1"), PLACES.stream("FLIGHTLOG_0", "floor")],
    "projector": [],
}


@pytest.mark.parametrize("role", list(USERS))
async def test_everything_else_is_refused(handed: Handed, role: Role) -> None:
    asked = [each.split() for each in FORBIDDEN]
    asked += [each.format(key, key).split() for key in others(role) for each in [*READS, *WRITES]]
    asked += [each.format(key, key).split() for key in READ_ONLY[role] for each in WRITES]
    asked += [["EVALSHA", "0" * 40, "1", key] for key in [*others(role), *READ_ONLY[role]]]
    async with handed.raw(USERS[role]) as client:
        allowed = [" ".join(words) for words in asked if await may(client, words)]
    assert allowed == []


async def may(client: Any, words: list[str]) -> bool:
    try:
        await client.execute_command(*words)
    except NoPermissionError:
        return False
    except Exception:  # noqa: BLE001  it was let in, and stumbled over something else
        return True
    return True


async def test_who_has_no_name_or_another_ones_secret_stays_outside(handed: Handed) -> None:
    port = handed.redis.port
    for url in (f"redis://127.0.0.1:{port}", f"redis://acme-harness:wrong@127.0.0.1:{port}"):
        store = Store.connect(url)
        with pytest.raises(Exception, match="refused us"):
            await store.row(TENANT, "s1")
        await store.close()
    acl = (handed.home / "redis" / "users.acl").read_text()
    secret = next(handed.home.glob("users/*/acme-harness/redis-password")).read_text().strip()
    assert secret not in acl
    assert hashlib.sha256(secret.encode()).hexdigest() in acl
    assert "mailer" not in acl  # a subscriber has no use for Redis
