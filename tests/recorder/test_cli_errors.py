"""What operators see when something is wrong: one line, no traceback, no secret, an exit code."""

import asyncio

import pytest
from typer.testing import CliRunner

from flightlog import connect
from flightlog.wire import subject as names
from flightlog_recorder.cli import app
from flightlog_recorder.embedded import Servers
from tests.conftest import MakeNats
from tests.recorder.command import Command, Ran, flightlog
from tests.recorder.recorded import talk
from tests.scripted import TENANT

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

SECRET = "hunter2-hunter2"
NOWHERE = f"nats://{SECRET}@127.0.0.1:1"


ON_A_BUS = [
    "ls",
    "provision",
    "verify --all",
    "show sess_a",
    "tail sess_a -f",
    "export sess_a",
    "resolve sess_a c --ruling fail --reason r",
    "import claude-code file.jsonl",
]
MEANT_BY_NOBODY = [
    ["verify"],
    ["verify", "sess_a", "--all"],
    ["show"],
    ["show", "sess_a", "--key", "k"],
    ["tail"],
    ["export"],
    ["ls", "--status", "asleep"],
    ["ls", "--waiting", "asleep"],
    ["ls", "--after", "x"],
    ["ls", "--label", "x"],
    ["fork", "sess_a", "--label", "x"],
    ["import", "codex", "a", "--label", "x"],
    ["run", "--key", "k", "--label", "x", "--", "true"],
    ["export", "sess_a", "--out", "."],
    ["export", "sess_a", "--out", "no/such/place"],
    ["resolve", "sess_a", "c", "--ruling", "maybe", "--reason", "r"],
    ["resolve", "sess_a", "c", "--ruling", "result", "--reason", "r"],
    ["resolve", "sess_a", "c", "--ruling", "fail", "--output", "1", "--reason", "r"],
    ["resolve", "sess_a", "c", "--ruling", "result", "--output", "{", "--reason", "r"],
    ["resolve", "sess_a", "c", "--ruling", "result", "--output", "@/nope", "--reason", "r"],
    ["import", "claude-code", "a", "b", "--key", "k"],
    ["import", "claude-code"],
    ["provision", "--streams", "65"],
    ["fly"],
]


def is_one_line(ran: Ran) -> bool:
    return ran.out == "" and ran.err.count("\n") == 1 and ran.err.startswith("flightlog: ")


async def test_without_a_bus_every_command_says_so_and_exits_3() -> None:
    command = Command({"FLIGHTLOG_NATS_URL": NOWHERE, "FLIGHTLOG_REDIS_URL": "redis://127.0.0.1:1"})
    ended = await asyncio.gather(*(command(*arguments.split()) for arguments in ON_A_BUS))
    for arguments, ran in zip(ON_A_BUS, ended, strict=True):
        assert (arguments, ran.code, is_one_line(ran)) == (arguments, 3, True)
        assert SECRET not in ran.err
        assert "127.0.0.1:1" in ran.err


async def test_a_wrong_password_is_named_and_not_repeated(nats_url: str) -> None:
    place = nats_url.rpartition("@")[2]
    ran = await Command({"FLIGHTLOG_NATS_URL": f"nats://{SECRET}@{place}"})("verify", "--all")
    assert (ran.code, is_one_line(ran), SECRET in ran.err) == (3, True, False)
    assert "credentials" in ran.err


async def test_a_broker_without_jetstream_is_named(make_nats: MakeNats) -> None:
    server = make_nats(jetstream=False)
    ran = await Command({"FLIGHTLOG_NATS_URL": server.url})("verify", "--all")
    assert (ran.code, is_one_line(ran)) == (3, True)
    assert "JetStream" in ran.err


async def test_looking_at_an_empty_broker_makes_nothing_and_names_the_command(
    servers: Servers,
) -> None:
    command = flightlog(servers)
    for _ in range(2):
        ran = await command("verify", "--all")
        assert (ran.code, is_one_line(ran)) == (3, True)
        assert "flightlog provision" in ran.err


async def test_a_session_that_is_not_there_is_a_problem(servers: Servers) -> None:
    async with connect(nats=servers.nats_url, tenant=TENANT):
        pass
    command = flightlog(servers)
    for verb in ("show", "tail", "export", "verify"):
        ran = await command(verb, names.mint())
        assert (verb, ran.code, is_one_line(ran)) == (verb, 1, True)
        assert "there is no session" in ran.err


async def test_a_key_that_no_session_has_is_not_taken_for_an_id(servers: Servers) -> None:
    async with connect(nats=servers.nats_url, tenant=TENANT):
        pass
    ran = await flightlog(servers)("show", "no such: key")
    assert (ran.code, is_one_line(ran)) == (1, True)
    assert "no session has this key" in ran.err


async def test_a_bad_tenant_is_wrong_usage(servers: Servers) -> None:
    ran = await flightlog(servers)("--tenant", "a.b", "ls")
    assert (ran.code, is_one_line(ran)) == (2, True)


@pytest.mark.parametrize("arguments", MEANT_BY_NOBODY, ids=" ".join)
def test_wrong_usage_exits_2_and_asks_nobody(arguments: list[str]) -> None:
    ran = CliRunner().invoke(app, arguments, env={"FLIGHTLOG_NATS_URL": NOWHERE})
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    assert "127.0.0.1" not in ran.stderr


def test_verify_without_a_session_names_all_its_options() -> None:
    assert (
        "--all" in CliRunner().invoke(app, ["verify"], env={"FLIGHTLOG_NATS_URL": NOWHERE}).stderr
    )


async def test_ls_without_redis_says_what_it_needs(servers: Servers) -> None:
    ran = await flightlog(servers, redis=False)("ls")
    assert (ran.code, is_one_line(ran)) == (2, True)
    assert "FLIGHTLOG_REDIS_URL" in ran.err


async def test_ls_with_redis_down_says_so(servers: Servers) -> None:
    async with connect(nats=servers.nats_url, tenant=TENANT):
        pass
    url = f"redis://:{SECRET}@127.0.0.1:1"
    ran = await flightlog(servers)("--redis", url, "ls")
    assert (ran.code, is_one_line(ran), SECRET in ran.err) == (3, True, False)


async def test_show_and_export_need_no_redis(servers: Servers) -> None:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        session = await talk(log)
    command = flightlog(servers, redis=False)
    for verb in ("show", "tail", "export", "verify"):
        assert (await command(verb, session)).code == 0


async def test_help_names_every_command() -> None:
    ran = await Command({})("--help")
    commands = ("up", "provision", "ls", "show", "tail", "resolve", "export", "verify", "import")
    assert ran.code == 0
    assert all(f" {name} " in ran.out for name in commands)


@pytest.mark.parametrize("options", [("--tenant", ""), ("--tenant", "a.b"), ("--prefix", "a b")])
async def test_a_tenant_or_a_prefix_that_cannot_be_meant_is_wrong_usage(
    servers: Servers, options: tuple[str, str]
) -> None:
    done = await flightlog(servers)(*options, "verify", "--all")
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
