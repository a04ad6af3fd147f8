"""Who may make a consumer may have it push anywhere, past its permissions: what that reaches.

The broker sends such messages itself, each under the subject that it was stored under.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from flightlog.bus.nats_bus import NatsBus, connect_bare
from flightlog.bus.protocol import Message
from flightlog.running import alive
from flightlog.wire import subject as names
from flightlog.wire.layout import DEAD_STREAM
from flightlog_recorder.access import accounts
from flightlog_recorder.access.accounts import Account, User
from flightlog_recorder.access.role import Permissions
from tests import roled as roles
from tests.conftest import MakeNats
from tests.roled import Roled
from tests.scripted import until
from tests.system.working import TENANT

FLEET = accounts.of_tenants("fleet", [TENANT], subscribers=["mailer"])
SUBSCRIBER = "acme-subscriber-mailer"
FORGED = names.mint()
LETTERS = names.dead_subject(TENANT, "mailer", "*", "*")
CONSUMER = f"{DEAD_STREAM}.{names.durable(TENANT, 'mailer')}"

pytestmark = pytest.mark.timeout(60)


async def pushes(bus: NatsBus, boss: NatsBus, target: str) -> bool:
    """Whether what a subscriber put into its dead letters is pushed to `target` for it."""
    config = {
        "durable_name": names.durable(TENANT, "mailer"),
        "ack_policy": "none",
        "filter_subject": LETTERS,
        "deliver_subject": target,
    }
    request = json.dumps({"stream_name": DEAD_STREAM, "config": config}).encode()
    assert "error" not in await bus.api(f"CONSUMER.CREATE.{CONSUMER}.{LETTERS}", request)
    bound = bool((await boss.api(f"CONSUMER.INFO.{CONSUMER}")).get("push_bound"))
    if bound:
        await until(lambda: is_delivered(boss))
    await boss.api(f"CONSUMER.DELETE.{CONSUMER}")
    return bound


async def is_delivered(boss: NatsBus) -> bool:
    about = await boss.api(f"CONSUMER.INFO.{CONSUMER}")
    return int(about["delivered"]["consumer_seq"]) > 0


@asynccontextmanager
async def forging(make_nats: MakeNats) -> AsyncGenerator[tuple[Roled, NatsBus, NatsBus]]:
    """A subscriber whose one dead letter reads like a beat, and the account's boss."""
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams()
    beat = json.dumps({"process": "forged", "opened": [FORGED]}).encode()
    assert alive.read(beat) is not None
    async with (
        await connect_bare(roled.url(SUBSCRIBER)) as subscriber,
        await connect_bare(roled.url("fleet-boss")) as boss,
    ):
        await subscriber.request(names.dead_subject(TENANT, "mailer", FORGED, 1), beat)
        yield roled, subscriber, boss


async def test_a_forged_beat_makes_no_session_seem_alive(make_nats: MakeNats) -> None:
    async with (
        forging(make_nats) as (roled, subscriber, boss),
        roled.log("acme-harness", tenant=TENANT) as log,
    ):
        asked = asyncio.create_task(alive.is_live(log.bus, TENANT, FORGED, patience=2))
        await until(lambda: pushes(subscriber, boss, names.alive_subject(TENANT)))
        assert not await asked


async def test_nothing_is_pushed_to_who_hears_a_session_nor_into_any_stream(
    make_nats: MakeNats,
) -> None:
    async with forging(make_nats) as (roled, subscriber, boss):  # noqa: SIM117  it ends last
        async with (
            roled.log("acme-harness", tenant=TENANT) as log,
            log.session() as session,
            log.watch(session.id),
        ):
            await session.user_message("hello")
            before = await held(boss)
            for part in ("live", "base"):
                to = names.log_subject(TENANT, session.id, part)
                assert not await pushes(subscriber, boss, to), part
            for to in (
                names.inbox_subject(TENANT, session.id, "one"),
                names.key_subject(TENANT, "job"),
                names.notice_subject(TENANT, session.id),
                "$JS.API.STREAM.PURGE.FLIGHTLOG_0",
                "$JS.API.STREAM.DELETE.FLIGHTLOG_inbox",
            ):
                assert not await pushes(subscriber, boss, to), to
            assert await held(boss) == before
            await session.user_message("it goes on")


async def held(bus: NatsBus) -> dict[str, int]:
    listed = (await bus.api("STREAM.LIST"))["streams"]
    return {each["config"]["name"]: each["state"]["last_seq"] for each in listed}


async def test_what_is_pushed_to_progress_is_not_taken_for_it(make_nats: MakeNats) -> None:
    heard = list[str]()

    async def hear(message: Message) -> None:
        heard.append(message.subject)

    to = names.progress_subject(TENANT, FORGED)
    async with forging(make_nats) as (_, subscriber, boss):
        await boss.listen(to, hear)
        await until(lambda: pushes(subscriber, boss, to))
        await boss.say(to, b"true")
        await until(lambda: is_in(heard, to))
    assert set(heard) == {to}


async def is_in(heard: list[str], subject: str) -> bool:
    return subject in heard


class Distrusted(Account, frozen=True):
    """An account whose subscriber may make no consumer."""

    def permissions(self, user: User) -> Permissions:
        found = super().permissions(user)
        if user.role != "subscriber":
            return found
        kept = [each for each in found.publish if ".CONSUMER.CREATE." not in each]
        assert len(kept) < len(found.publish)
        return replace(found, publish=tuple(kept))


async def test_a_subscriber_that_may_make_no_consumer_works_with_those_an_admin_made(
    make_nats: MakeNats,
) -> None:
    account = Distrusted(FLEET.name, FLEET.users)
    roled = roles.start(make_nats, account)
    await roled.make_streams()
    async with roled.log("fleet-admin", tenant=TENANT) as admin, admin.subscribe("mailer"):
        pass  # they are there now
    async with (
        roled.log("acme-harness", tenant=TENANT) as harness,
        roled.log(SUBSCRIBER, tenant=TENANT) as log,
        log.subscribe("mailer", types=["user_message"]) as mailer,
    ):
        async with harness.session() as session:
            await session.user_message("hello")
        delivery = await anext(aiter(mailer))
        assert delivery.event.session_id == session.id
        await delivery.ack()
        with pytest.raises(Exception, match="publish to"):
            async with log.subscribe("another"):
                pass
    did = roled.did(SUBSCRIBER)
    assert [to for _, to in did.refused if "mailer@" in to] == []
