"""What a role must not do is refused by the server, at once and in words."""

import asyncio

import pytest

from flightlog import BusUnavailable, NotPermitted
from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus
from flightlog.bus.notices import Notices
from flightlog.bus.protocol import Outgoing
from flightlog.running.inbox import Cancel
from flightlog.wire import subject as names
from flightlog_recorder.access import accounts
from flightlog_recorder.access.role import ROLES, SYSTEM_REQUEST, Role
from tests import roled as roles
from tests.conftest import MakeNats
from tests.roled import PASSWORD, Roled

FLEET = accounts.of_tenants("fleet", ["acme", "globex"], subscribers=["mailer"])
SYSTEM = accounts.system()
OTHER = "sess_other"

APPENDS_FOR_OTHERS = [
    names.log_subject("globex", OTHER, "live"),
    names.log_subject("globex", OTHER, "base"),
    names.blob_subject("globex", OTHER, "0" * 64),
    names.key_subject("globex", "job"),
    names.alive_subject("globex"),
    names.progress_subject("globex", OTHER),
]
DECISIONS = [
    names.inbox_subject("acme", OTHER, "one"),
    names.inbox_subject("acme", OTHER, "live"),  # reads like the subject of a log
    names.inbox_subject("acme", OTHER, "base"),
    names.inbox_subject("globex", OTHER, "one"),
]
WRITES = [
    names.log_subject("acme", OTHER, "live"),
    names.log_subject("acme", OTHER, "base"),
    names.blob_subject("acme", OTHER, "0" * 64),
    names.key_subject("acme", "job"),
]
PURGES = [f"$JS.API.STREAM.PURGE.{each}" for each in ("FLIGHTLOG_0", "FLIGHTLOG_inbox")]
MAKES = ["$JS.API.STREAM.CREATE.FLIGHTLOG_0", "$JS.API.STREAM.CREATE.MINE"]
ADMINISTERS = [
    "$JS.API.STREAM.UPDATE.FLIGHTLOG_0",
    "$JS.API.STREAM.DELETE.FLIGHTLOG_0",
    "$JS.API.STREAM.MSG.DELETE.FLIGHTLOG_0",
    "$JS.API.STREAM.RESTORE.FLIGHTLOG_0",
    "$JS.API.STREAM.SNAPSHOT.FLIGHTLOG_0",
    "$JS.API.STREAM.INFO.MINE",
    "$JS.API.DIRECT.GET.MINE",
    "$JS.API.CONSUMER.CREATE.FLIGHTLOG_0",
    "$JS.API.CONSUMER.CREATE.FLIGHTLOG_0.spy",
    "$JS.API.CONSUMER.CREATE.FLIGHTLOG_0.mailer@acme.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.FLIGHTLOG_0.spy",
    "$JS.API.CONSUMER.MSG.NEXT.FLIGHTLOG_0.spy",
    "$JS.ACK.FLIGHTLOG_0.spy.1.1.1.1.1",
    "$SYS.REQ.SERVER.PING.CONNZ",
]
ROBS = [
    "$JS.API.CONSUMER.DELETE.FLIGHTLOG_0.mailer@acme",
    "$JS.API.CONSUMER.MSG.NEXT.FLIGHTLOG_0.projector",
    "$JS.ACK.FLIGHTLOG_0.projector.1.1.1.1.1",
]
SPIES = [">", "_INBOX.>", "_INBOX.fleet-boss.>", "$JS.>", "$KV.>", "flightlog.v1.>"]
OVERHEARS = [names.log_subject("globex", OTHER, "live"), "flightlog.v1.*.*.*.live"]

REFUSED: dict[Role, tuple[list[str], list[str]]] = {
    "harness": (
        [*APPENDS_FOR_OTHERS, *DECISIONS, *PURGES, *MAKES, *ADMINISTERS, *ROBS, SYSTEM_REQUEST],
        [*SPIES, *OVERHEARS],
    ),
    "subscriber": (
        [*APPENDS_FOR_OTHERS, *DECISIONS, *WRITES, *PURGES, *MAKES, *ADMINISTERS, *ROBS],
        [*SPIES, *OVERHEARS],
    ),
    "projector": (
        [*APPENDS_FOR_OTHERS, *DECISIONS, *WRITES, *PURGES, *MAKES, *ADMINISTERS, ROBS[0]],
        [*SPIES, *OVERHEARS],
    ),
    "recorder": (
        [*DECISIONS, *MAKES, *ADMINISTERS, *ROBS, names.log_subject("acme", OTHER, "live")],
        [*SPIES, *OVERHEARS],
    ),
    "operator": ([*ADMINISTERS, *ROBS[1:], "$JS.API.STREAM.CREATE.MINE", SYSTEM_REQUEST], SPIES),
    "doctor": (
        ["$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.X.RELOAD", "$SYS.REQ.ACCOUNT.A.CONNZ"],
        [">", "$SYS.>", "_INBOX.>"],
    ),
}


@pytest.fixture
def roled(make_nats: MakeNats) -> Roled:
    return roles.start(make_nats, FLEET)


@pytest.mark.parametrize("role", [role for role in ROLES if role != "admin"])
async def test_everything_else_is_refused(roled: Roled, role: Role) -> None:
    account = SYSTEM if role == "doctor" else FLEET
    publishes, listens = REFUSED[role]
    async with await connect_bare(roled.url(roles.user(account, role).name)) as bus:
        may_publish = await asyncio.gather(*(may(bus, to) for to in publishes))
        may_listen = [to for to in listens if await hears(bus, to)]
    assert [to for to, allowed in zip(publishes, may_publish, strict=True) if allowed] == []
    assert may_listen == []


async def test_an_admin_may_do_anything_in_its_account_and_nothing_beyond(
    make_nats: MakeNats,
) -> None:
    roled = roles.start(make_nats, FLEET, accounts.of_tenants("other", ["initech"]))
    await roled.make_streams()
    async with await connect_bare(roled.url("fleet-admin")) as bus:
        for subject in [*DECISIONS, *PURGES, *MAKES, *ADMINISTERS[:5]]:
            assert await may(bus, subject), subject
        assert await hears(bus, ">")
        with pytest.raises(BusUnavailable):  # nobody hears it: it is not the servers' account
            await bus.ask_all(SYSTEM_REQUEST, _ignore)
        assert "error" in await bus.api("STREAM.INFO.FLIGHTLOG_0")  # it has deleted that
    async with await connect_bare(roled.url("other-boss")) as other:
        assert "error" not in await other.api("STREAM.INFO.FLIGHTLOG_0")


async def may(bus: NatsBus, subject: str) -> bool:
    try:
        await bus.request(subject, b"{}")
    except NotPermitted:
        return False
    return True


async def hears(bus: NatsBus, subject: str) -> bool:
    try:
        await (await bus.listen(subject, _ignore)).close()
    except NotPermitted:
        return False
    return True


async def _ignore(_: object) -> None:
    pass


async def test_an_agent_cannot_approve_its_own_call_and_is_told_so(roled: Roled) -> None:
    await roled.make_streams()
    async with roled.log("acme-harness", tenant="acme") as log, log.session() as session:
        await session.user_message("go")
        with pytest.raises(NotPermitted, match=r"publish to flightlog\.v1\.inbox\.acme"):
            await log.send(session.id, Cancel(by="me"))
        await session.user_message("it goes on all the same")


async def test_a_harness_of_another_tenant_is_told_at_once_that_it_may_not_append(
    roled: Roled,
) -> None:
    await roled.make_streams()
    async with roled.log("acme-harness", tenant="globex") as log:
        with pytest.raises(NotPermitted, match="publish to"):
            async with log.session(key="job"):
                pass
        to = names.log_subject("globex", OTHER, "live")
        with pytest.raises(NotPermitted, match=to):
            await log.bus.append(to, [Outgoing(b"x", {})], expected=0, timeout=5)


@pytest.mark.parametrize(
    "missing",
    ["$JS.API.CONSUMER.MSG.NEXT.FLIGHTLOG_0.projector", "$JS.ACK.FLIGHTLOG_0.projector.>"],
)
async def test_who_may_not_pull_or_acknowledge_is_told_and_does_not_wait_for_ever(
    make_nats: MakeNats, missing: str
) -> None:
    allowed = f'permissions: {{ publish: {{ deny: ["{missing}"] }} }}'
    server = make_nats(
        access=f"authorization {{ users: [ {{ user: ann, password: {PASSWORD}, {allowed} }} ] }}"
    )
    async with await connect_bus(f"nats://ann:{PASSWORD}@127.0.0.1:{server.port}") as bus:
        await bus.request(names.log_subject("acme", OTHER, "live"), b"x")
        notices = Notices(bus, "FLIGHTLOG_0", "projector")
        with pytest.raises(NotPermitted, match="publish to"):
            for _ in range(5):
                await notices.ack(await notices.fetch(10, timeout=2))
        await notices.close()
