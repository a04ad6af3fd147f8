"""Each role does its whole work with its permissions, makes use of all of them, and no more.

What a program was not allowed to do is in the server's own log, also where nobody waited for it.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flightlog import BlobMissing, Log, LogCorrupt
from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus
from flightlog.subscribing import letter as letters
from flightlog.subscribing import standing
from flightlog.wire import subject as names
from flightlog.wire.chunk import Blob
from flightlog.wire.layout import BLOB_STREAM, NOTICE_STREAM
from flightlog.writing import keys
from flightlog_recorder.access import accounts
from flightlog_recorder.access.role import OWN_PERMISSIONS, Role
from tests import roled as roles
from tests.conftest import MakeNats
from tests.handmade import chain, tombstone
from tests.projector.conftest import Child, environment, spawn
from tests.recorder.command import Command
from tests.recorder.recorded import left_running, write
from tests.roled import Roled
from tests.scripted import until
from tests.system.working import TENANT, begin, damage, letter_about, look_back, resume

FLEET = accounts.of_tenants("fleet", [TENANT, "globex"], subscribers=["mailer"])
ROLLOUT = Path(__file__).parents[1] / "recorder" / "data" / "codex" / "tools.jsonl"

pytestmark = pytest.mark.timeout(60)  # services and commands are processes of their own


@pytest.fixture
def roled(make_nats: MakeNats) -> Roled:
    return roles.start(make_nats, FLEET)


@asynccontextmanager
async def whole_work(roled: Roled, role: Role) -> AsyncGenerator[None]:
    """Nothing that is done in the block is refused to the role, and it uses all that it may do."""
    who = roles.user(FLEET, role)
    yield
    async with await connect_bare(roled.url(who.name)) as bus:
        await bus.request(OWN_PERMISSIONS)
    did = roled.did(who.name)
    assert did.refused == []
    assert not did.unused(FLEET, who), did.unused(FLEET, who)


async def test_a_harness(roled: Roled, redis_url: str) -> None:
    await roled.make_streams()
    async with (
        whole_work(roled, "harness"),
        roled.log("acme-harness", tenant=TENANT, redis=redis_url) as log,
        roled.log("fleet-operator", tenant=TENANT) as operator,
    ):
        await begin(log)
        session = await resume(log, operator)
        await look_back(log, session)
        with pytest.raises(LogCorrupt):
            await log.state(await damage(log))


async def test_an_operator(roled: Roled, redis_url: str, tmp_path: Path) -> None:
    command = Command(
        {
            "FLIGHTLOG_NATS_URL": roled.url("fleet-operator"),
            "FLIGHTLOG_REDIS_URL": redis_url,
            "FLIGHTLOG_TENANT": TENANT,
        }
    )

    async def ran(*words: str) -> None:
        done = await command(*words)
        assert done.code == 0, (words, done)

    async with whole_work(roled, "operator"):
        await ran("provision")
        async with roled.log("acme-harness", tenant=TENANT) as log:
            session = await begin(log)
            await roled.notice("fleet", TENANT, session)
            async with log.session(key="job"):
                pass  # what was in flight waits for a person now
        async with command.running("tail", "--follow", session) as tail:
            assert "session_started" in await tail.line()
        await ran("resolve", session, "b", "--ruling", "fail", "--reason", "no")
        await ran("fork", session, "--at", "3", "--key", "copy")
        await ran("export", session, "--out", str(tmp_path / "session.jsonl"))
        await ran("import", "codex", str(ROLLOUT))
        await ran("verify", "--all")
        await ran("purge", session, "--why", "a test")
        await look_after_subscribers(roled)


async def look_after_subscribers(roled: Roled) -> None:
    async with await connect_bus(roled.url("fleet-operator")) as bus:
        await letters.bury(bus, TENANT, letter_about(names.mint()))
        assert [each.dead for each in await standing.standings(bus, TENANT)] == [1]
        await letters.drop(bus, TENANT, "mailer")
        await standing.remove(bus, TENANT, "mailer")


async def test_a_subscriber(roled: Roled) -> None:
    await roled.make_streams()
    async with (
        whole_work(roled, "subscriber"),
        roled.log("acme-subscriber-mailer", tenant=TENANT) as log,
        roled.log("acme-harness", tenant=TENANT) as harness,
    ):
        async with log.subscribe("mailer", types=["user_message"]) as mailer:
            coming = aiter(mailer)
            session = await begin(harness)
            delivery = await anext(coming)
            assert await log.payload(delivery.event)
            await delivery.dead("no such address")
            await hand_back(roled)
            await roled.notice("fleet", TENANT, session)
            again = await anext(coming)
            assert again.id == delivery.id
            await again.ack()
            # What comes of a notice is not its delivery: its body says that it is not wanted.
            await until(lambda: has_read(roled, "acme-subscriber-mailer", NOTICE_STREAM))
        with pytest.raises(BlobMissing):
            [_ async for _ in log.blob(session, Blob(digest="0" * 64, size=1, kind="bytes"))]
        bus = log.bus
        assert isinstance(bus, NatsBus)
        for stream in standing.streams(bus):  # as when a purge is faster, or a replica lags
            await bus.after(stream, ">", 1_000, leader=True)


def has_read(roled: Roled, user: str, stream: str) -> bool:
    """Whether the user has asked for a message of the stream."""
    return f"$JS.API.DIRECT.GET.{stream}" in roled.did(user).published


async def hand_back(roled: Roled) -> None:
    """The operator has the dead letters delivered once more."""
    async with roled.log("fleet-operator", tenant=TENANT) as operator:
        async for letter in letters.letters(operator.bus, TENANT):
            await letters.send_again(operator.bus, TENANT, letter)


async def test_a_projector(roled: Roled, redis_url: str) -> None:
    await roled.make_streams()
    env = environment(roled.url("fleet-projector"), redis_url)
    async with (
        whole_work(roled, "projector"),
        roled.log("acme-harness", tenant=TENANT, redis=redis_url) as log,
    ):
        await damage(log)
        first = await begin(log, "before it starts")
        async with running(env, "flightlog_projector"):
            await until(lambda: is_projected(log, first), timeout=20)
        second = await begin(log, "while it is down")
        async with running(env, "flightlog_projector"):
            await until(lambda: is_projected(log, second), timeout=20)


@asynccontextmanager
async def running(env: dict[str, str], module: str) -> AsyncGenerator[Child]:
    service = await spawn(env, module=module)
    try:
        yield service
    finally:
        service.process.terminate()
        assert await service.process.wait() == 0


async def is_projected(log: Log, session: str) -> bool:
    assert log.store is not None
    return await log.store.row(TENANT, session) is not None


async def test_a_recorder(roled: Roled, redis_url: str) -> None:
    """It verifies, finishes a purge, gives up a base, clears an inbox, tells what is stalled."""
    await roled.make_streams()
    env = environment(roled.url("fleet-recorder"), redis_url, FLIGHTLOG_BASE_AGE="0")
    env["FLIGHTLOG_STALLED_AFTER"] = "1"
    async with (
        roled.log("fleet-boss", tenant=TENANT, redis=redis_url) as log,
        whole_work(roled, "recorder"),
    ):
        stalled = await left_running(log)
        await log.say(await begin(log), "taken")
        async with log.session(key="job"):
            pass
        buried = await bury(roled, log)
        base = await keys.claim(log.bus, TENANT, "import", made_by="import")
        await write(log, base.id, chain(2, session=base.id), part="base")
        await damage(log)
        async with running(env, "flightlog_recorder.service") as recorder:
            await until(lambda: has_gone_round(recorder), timeout=20)
            await until(lambda: is_stalled(log, stalled), timeout=20)
        assert await is_clean(log, buried)


async def is_stalled(log: Log, session: str) -> bool:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    return row is not None and row.stalled is not None


async def has_gone_round(recorder: Child) -> bool:
    _, text = await recorder.page("/metrics")
    return "\nflightlog_recorder_rounds_total 0.0" not in text


async def bury(roled: Roled, log: Log) -> str:
    """A session that a purge left right after its tombstone, with something in every place."""
    session = await begin(log, "buried")
    await log.say(session, "hello")
    await roled.notice("fleet", TENANT, session)
    await letters.bury(log.bus, TENANT, letter_about(session))
    live = names.log_subject(TENANT, session, "live")
    last = await log.bus.last(log.bus.layout.stream_of(session), live)
    assert last is not None
    await write(log, session, [tombstone(session=session)], last=last.sequence)
    return session


async def is_clean(log: Log, buried: str) -> bool:
    left = await log.bus.last(BLOB_STREAM, names.blob_subject(TENANT, buried, "*"))
    free = await keys.look_up(log.bus, TENANT, "import") is None
    return left is None and free
