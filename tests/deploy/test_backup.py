"""Backup and restore with the broker's own means, as `nats stream backup` and `restore` do it."""

import asyncio
import json
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

import flightlog
from flightlog.bus.nats_bus import NatsBus
from flightlog_recorder.access.accounts import of_tenants
from flightlog_recorder.verify import Checker
from tests import roled as roles
from tests.conftest import MakeNats

KEY = "nightly/1"
CHUNK = 64 * 1024  # bytes
Backup = tuple[dict[str, Any], list[bytes]]


async def ask(client: Client, verb: str, **request: Any) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.{verb}", json.dumps(request).encode(), timeout=5)
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, found
    return found


async def back_up(client: Client, stream: str) -> Backup:
    """A stream's settings and data, consumers too."""
    chunks, whole = list[bytes](), asyncio.Event()

    async def take(msg: Msg) -> None:
        if not msg.data:
            whole.set()
            return
        chunks.append(msg.data)
        if msg.reply:
            await msg.respond(b"")

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=take)
    about = await ask(client, f"STREAM.SNAPSHOT.{stream}", deliver_subject=inbox, chunk_size=CHUNK)
    await whole.wait()
    return {"config": about["config"], "state": about["state"]}, chunks


async def restore(client: Client, stream: str, backup: Backup) -> None:
    about, chunks = backup
    target = (await ask(client, f"STREAM.RESTORE.{stream}", **about))["deliver_subject"]
    for chunk in chunks:
        await client.request(target, chunk, timeout=5)
    done = json.loads((await client.request(target, b"", timeout=5)).data)
    assert "error" not in done, done


async def copy_streams(source: str, target: str) -> None:
    async with await nats.connect(source) as old, await nats.connect(target) as new:
        streams = (await ask(old, "STREAM.NAMES"))["streams"]
        logs_first = sorted(streams, key=lambda name: not name[-1].isdigit())
        backups = {name: await back_up(old, name) for name in logs_first}
        for name, backup in backups.items():
            await restore(new, name, backup)


async def test_an_admin_may_back_up_and_restore_and_an_operator_may_not(
    make_nats: MakeNats,
) -> None:
    """By the users that `flightlog provision --tenant` makes."""
    old, new = (roles.start(make_nats, of_tenants("fleet", ["acme"])) for _ in range(2))
    await old.make_streams()
    async with old.log("acme-harness", tenant="acme") as log, log.session(key=KEY) as session:
        await session.user_message("hello")
    with pytest.raises(TimeoutError):
        async with await nats.connect(old.url("fleet-operator"), error_cb=ignore) as client:
            await ask(client, "STREAM.SNAPSHOT.FLIGHTLOG_0", deliver_subject="_INBOX.x")
    await copy_streams(old.url("fleet-admin"), new.url("fleet-admin"))
    async with new.log("acme-harness", tenant="acme") as log:
        assert await log.look_up(KEY) == session.id
        assert [event async for event in log.read(session.id)]


async def ignore(_: Exception) -> None:
    pass


async def test_sessions_go_on_where_the_backup_ended(make_nats: MakeNats) -> None:
    lost, fresh = make_nats(), make_nats()
    async with flightlog.connect(nats=lost.url) as log:
        async with log.session(key=KEY) as session:
            await session.user_message("x" * 600_000, once="task")
        await log.say(session.id, "while it slept")
    await copy_streams(lost.url, fresh.url)
    lost.kill()
    async with flightlog.connect(nats=fresh.url, provision=False) as log:
        async with log.session(key=KEY) as again:
            assert again.id == session.id
            await again.user_message("never asked twice", once="task")
            await again.end("completed")
        events = [event async for event in log.read(session.id)]
        bus = log.bus
        assert isinstance(bus, NatsBus)
        assert (await Checker(bus, None, log.tenant).check(session.id)).outcome == "ok"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count("user_message") == 2
