"""Tenants that distrust each other, in accounts made by the command: all works, nothing is heard.

What a tenant tries against another one is tried by each of its users, and by one who may do
anything in its account: what keeps them apart is the account, not the permissions in it.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from flightlog import BusUnavailable, Decide, NotPermitted, Suspended
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import NatsBus, connect_bare, connect_bus
from flightlog.bus.protocol import Message
from flightlog.wire import layout
from flightlog.wire import subject as names
from tests import handed as hands
from tests.handed import Handed
from tests.projector.conftest import spawn
from tests.recorder.command import Command
from tests.recorder.recorded import talk
from tests.scripted import Model, asks, owed, says, until

KEY = "nightly/2026-05-06"
SECRET = "what globex alone may know"
ACME = ("--tenant", "acme", "--subscriber", "mailer")
GLOBEX = ("--tenant", "globex", "--subscriber", "mailer", "--proof", "nkey")

pytestmark = pytest.mark.timeout(90)  # services and commands are processes of their own


@pytest.fixture
def handed(tmp_path: Path) -> Generator[Handed]:
    with hands.running(tmp_path, ACME, GLOBEX) as made:
        yield made


async def ran(command: Command, *words: str) -> str:
    done = await command(*words)
    assert done.code == 0, (words, done)
    return done.out


async def make_streams(handed: Handed) -> None:
    for tenant in ("acme", "globex"):
        assert "created    FLIGHTLOG_0" in await ran(
            handed.command(f"{tenant}-operator"), "provision"
        )


async def test_the_whole_path_works_in_each_account_at_once(handed: Handed) -> None:
    await make_streams(handed)
    async with asyncio.TaskGroup() as tenants:
        acme = tenants.create_task(goes_its_way(handed, "acme"))
        globex = tenants.create_task(goes_its_way(handed, "globex"))
    assert acme.result() != globex.result()


async def goes_its_way(handed: Handed, tenant: str) -> str:
    """Record, project, notify, decide, list, purge: by the users whose work each of them is."""
    command = handed.command(f"{tenant}-operator")
    projector = await spawn(handed.program(f"{tenant}-projector"))
    try:
        async with (
            handed.log(f"{tenant}-subscriber-mailer") as log,
            log.subscribe("mailer", types=["user_message"]) as mailer,
        ):
            session = await asks_a_person(handed, tenant)
            delivery = await anext(aiter(mailer))
            assert delivery.event.session_id == session
            await delivery.ack()
        await ran(command, "resolve", session, "a", "--ruling", "fail", "--reason", "no")
        assert await goes_on(handed, tenant) == session
        await until(lambda: shows(command, session, "completed"), timeout=30)
        await ran(command, "subscribe", "--remove", "--name", "mailer")
        await ran(command, "purge", session, "--why", "a test")
        assert (await command("show", session)).code == 1
    finally:
        projector.process.terminate()
        assert await projector.process.wait() == 0, projector.said
    return session


async def asks_a_person(handed: Handed, tenant: str) -> str:
    """A session that is left with a call that nobody but a person may rule."""
    model = Model(asks(("a", "wire", {})))
    async with handed.log(f"{tenant}-harness") as log, log.session(key=KEY) as session:
        await session.user_message(f"the task of {tenant}", once="task")
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        [call] = session.state.next.calls  # type: ignore[union-attr]
        with pytest.raises(Suspended):
            async with session.calling(call, on_resume="ask"):
                await session.suspend("the pod goes")
    async with handed.log(f"{tenant}-harness") as log, log.session(key=KEY):
        pass  # what was in flight waits for a person now
    return session.id


async def goes_on(handed: Handed, tenant: str) -> str:
    async with handed.log(f"{tenant}-harness") as log, log.session(key=KEY) as session:
        while isinstance(owed(session), Decide):
            assert await session.wait(10)
        request = {"model": "m", "messages": session.state.messages()}
        assert f"the task of {tenant}" in str(request)
        await session.model_call(request, call=Model(says("done")))
        await session.end()
    return session.id


async def shows(command: Command, session: str, status: str) -> bool:
    """Whether the catalog lists this session and no other."""
    rows = (await command("ls", "--json")).json["sessions"]
    assert {row["session"] for row in rows} <= {session}
    return [row["status"] for row in rows] == [status]


def subjects_of(session: str) -> list[str]:
    """Where whoever means another's session could send to."""
    return [
        names.log_subject("globex", session, "live"),
        names.log_subject("globex", session, "base"),
        names.inbox_subject("globex", session, "one"),
        names.blob_subject("globex", session, "0" * 64),
        names.notice_subject("globex", session),
        names.alive_subject("globex"),
        names.progress_subject("globex", session),
        names.key_subject("globex", KEY),
    ]


def questions_about(session: str) -> list[tuple[str, bytes]]:
    """Each way to ask for what another's streams hold."""
    live = names.log_subject("globex", session, "live")
    streams = ["FLIGHTLOG_0", layout.INBOX_STREAM, layout.KEYS_STREAM, layout.BLOB_STREAM]
    asked = [("$JS.API.STREAM.LIST", b""), ("$JS.API.STREAM.NAMES", b""), ("$JS.API.INFO", b"")]
    for stream in streams:
        asked += [
            (f"$JS.API.DIRECT.GET.{stream}.{live}", b""),
            (f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1}'),
            (f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":1}'),
            (f"$JS.API.STREAM.MSG.GET.{stream}", b'{"last_by_subj":">"}'),
            (f"$JS.API.STREAM.INFO.{stream}", b'{"subjects_filter":">"}'),
            (f"$JS.API.STREAM.PURGE.{stream}", b""),
            (f"$JS.API.STREAM.DELETE.{stream}", b""),
        ]
    return asked


async def test_nothing_of_a_tenant_is_seen_or_touched_from_anothers_account(
    handed: Handed,
) -> None:
    await make_streams(handed)
    async with handed.log("globex-harness") as log:
        session = await talk(log, key=KEY)
        async with log.session(key="another") as running:
            await running.user_message(SECRET)
    before = await contents(handed, "globex")
    heard, answers = list[Message](), list[bytes]()
    async with AsyncExitStack() as stack:
        boss = await stack.enter_async_context(await connect_bare(handed.boss("globex")))
        await boss.listen(">", keeping(heard))
        for who in [*everybody_of(handed, "acme"), handed.boss("acme")]:
            bus = await stack.enter_async_context(await connect_bare(who))
            answers += await tries_everything(bus, session)
        await boss.request("$JS.API.INFO")  # whatever was sent before has been heard now
    assert await contents(handed, "globex") == before
    assert [each.subject for each in heard if not each.subject.startswith(("_INBOX", "$JS"))] == []
    told = b"".join(answers).decode(errors="replace")
    assert [word for word in (running.id, SECRET, "what is 1 + 1?") if word in told] == []


def everybody_of(handed: Handed, tenant: str) -> list[NatsAccess]:
    users = sorted(path.name for path in handed.home.glob(f"users/{tenant}/*"))
    assert len(users) == 6
    return [handed.access(user) for user in users]


def keeping(heard: list[Message]) -> Callable[[Message], Awaitable[None]]:
    async def hear(message: Message) -> None:
        heard.append(message)

    return hear


async def tries_everything(bus: NatsBus, session: str) -> list[bytes]:
    """What was answered; that much of it is refused is each role's own test."""
    sent = [(to, b"an intruder's") for to in subjects_of(session)]
    asked = [ask(bus, *each) for each in [*sent, *questions_about(session)]]
    return await asyncio.gather(*asked)


async def ask(bus: NatsBus, subject: str, body: bytes) -> bytes:
    with suppress(NotPermitted, BusUnavailable):
        return bytes((await bus.request(subject, body, timeout=1)).data)
    return b""


async def contents(handed: Handed, account: str) -> dict[str, object]:
    """Each stream of the account with what it holds."""
    async with await connect_bare(handed.boss(account)) as bus:
        listed = (await bus.api("STREAM.LIST"))["streams"]
    return {each["config"]["name"]: (each["config"], each["state"]) for each in listed}


async def test_who_listens_to_everything_hears_nothing_of_another_account(handed: Handed) -> None:
    await make_streams(handed)
    heard, own = list[Message](), list[Message]()
    async with (
        await connect_bare(handed.boss("acme")) as spy,
        await connect_bare(handed.boss("globex")) as boss,
        handed.log("globex-harness") as log,
    ):
        await spy.listen(">", keeping(heard))
        await boss.listen(">", keeping(own))
        session = await talk(log, key=KEY)
        async with log.session(key="another") as running:
            await running.progress("half")
            await running.user_message(SECRET)
        await until(lambda: mentions(own, session, running.id, "progress"))
        await spy.request("$JS.API.INFO")
    assert not mentions(heard, session, running.id, "globex", SECRET, any_of=True)


def mentions(heard: Iterable[Message], *words: str, any_of: bool = False) -> bool:
    text = " ".join(f"{each.subject} {each.body.decode(errors='replace')}" for each in heard)
    found = [word in text for word in words]
    return any(found) if any_of else all(found)


async def test_the_same_key_stands_for_a_session_in_each_account(handed: Handed) -> None:
    await make_streams(handed)
    found = dict[str, str]()
    for tenant in ("acme", "globex"):
        async with handed.log(f"{tenant}-harness") as log:
            found[tenant] = await talk(log, key=KEY)
    assert found["acme"] != found["globex"]
    for tenant, session in found.items():
        async with await connect_bus(handed.boss(tenant)) as bus:
            stream = bus.layout.stream_of(session)
            held = [subject async for page in bus.subjects(stream) for subject in page]
        assert held == [names.log_subject(tenant, session, "live")]


PROVEN = ("permissions", "sync_always", "redis permissions", "stream settings")


async def test_the_doctor_finds_each_user_to_have_what_its_role_needs(handed: Handed) -> None:
    await make_streams(handed)
    [servers] = handed.home.glob("users/SYS/doctor/nats-url")
    system = {"FLIGHTLOG_SYSTEM_NATS_URL_FILE": str(servers)}
    for user in ("acme-operator", "acme-harness", "acme-subscriber-mailer", "acme-recorder"):
        environ = handed.environ(user) | system
        found = (await Command(environ)("doctor", "--json")).json["findings"]
        grades = {each["check"]: each["grade"] for each in found if each["check"] in PROVEN}
        if "operator" not in user:  # only he may ask Redis how it is set
            grades.pop("redis permissions", None)
        assert set(grades.values()) == {"ok"}, (user, found)


async def test_a_password_is_changed_while_its_user_works(handed: Handed) -> None:
    await make_streams(handed)
    was = handed.access("acme-harness")
    old = NatsAccess(url=was.url, user=was.user, password=secret_of(was))
    async with handed.log("acme-harness") as log, log.session(key=KEY) as session:
        await session.user_message("before")
        next(handed.home.glob("users/acme/acme-harness/nats-password")).unlink()
        hands.provision(handed.home, *ACME, nats_port=handed.nats.port)
        os.kill(handed.nats.pid, signal.SIGHUP)
        await until(lambda: is_outside(old))
        await session.user_message("after")
    assert secret_of(handed.access("acme-harness")) != old.password


def secret_of(where: NatsAccess) -> str:
    return where.password() if callable(where.password) else where.password


async def is_outside(who: NatsAccess) -> bool:
    try:
        await (await connect_bare(who)).close()
    except NotPermitted:
        return True
    return False
