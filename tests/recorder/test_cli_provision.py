"""`flightlog provision`: what it makes, what it finds, and what it never touches."""

import json
from pathlib import Path

import pytest

from flightlog import LogFull, connect
from flightlog.bus import nats_bus
from flightlog.wire import layout
from flightlog_recorder.embedded import Servers
from flightlog_recorder.provision import Wish, plan
from tests import handed
from tests.cluster import Cluster
from tests.conftest import MakeNats
from tests.recorder.command import Command, flightlog

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

LOGS_OF_8 = [f"FLIGHTLOG_{n}" for n in range(8)]
SIDE = [
    "FLIGHTLOG_inbox",
    "FLIGHTLOG_notice",
    "FLIGHTLOG_blobs",
    "FLIGHTLOG_dead",
    "KV_FLIGHTLOG_keys",
]


async def test_an_empty_broker_gets_its_streams_once(servers: Servers) -> None:
    command = flightlog(servers)
    first = (await command("provision", "--streams", "8", "--json")).json
    assert (first["created"], first["there"]) == (LOGS_OF_8 + SIDE, [])
    again = await command("provision", "--json")
    assert again.code == 0
    assert (again.json["created"], again.json["there"]) == ([], LOGS_OF_8 + SIDE)
    async with connect(nats=servers.nats_url, provision=False) as log:
        assert log.bus.layout.streams == tuple(LOGS_OF_8)


async def test_what_is_missing_is_made_beside_what_is_there(servers: Servers) -> None:
    bus = await nats_bus.connect_bare(servers.nats_url)
    await nats_bus.create(bus, layout.log_configs(2)[:1])
    await bus.close()
    made = (await flightlog(servers)("provision", "--streams", "2", "--json")).json
    assert (made["created"], made["there"]) == (["FLIGHTLOG_1", *SIDE], ["FLIGHTLOG_0"])


async def test_another_number_of_streams_is_refused_and_changes_nothing(servers: Servers) -> None:
    command = flightlog(servers)
    await command("provision", "--streams", "2")
    for streams in ("4", "1"):
        ran = await command("provision", "--streams", streams)
        assert ran.code == 1
        assert "differs" in ran.out
        assert "nothing was changed" in ran.err
    async with connect(nats=servers.nats_url, provision=False) as log:
        assert len(log.bus.layout.streams) == 2


async def test_a_stream_with_other_settings_is_refused_by_field(servers: Servers) -> None:
    bus = await nats_bus.connect_bare(servers.nats_url)
    [config] = layout.log_configs(1)
    await nats_bus.create(bus, [config | {"max_age": 3_600_000_000_000, "discard": "old"}])
    ran = await flightlog(servers)("provision", "--json")
    names = [config["name"] for config in await bus.stream_configs()]
    await bus.close()
    [refused] = ran.json["refused"]
    assert (ran.code, refused["stream"], names) == (1, "FLIGHTLOG_0", ["FLIGHTLOG_0"])
    assert {text.split()[0] for text in refused["fields"]} == {"max_age", "discard"}


async def test_a_prefix_is_part_of_the_layout(servers: Servers) -> None:
    command = flightlog(servers)
    await command("--prefix", "other.v1", "provision")
    async with connect(nats=servers.nats_url, prefix="other.v1", provision=False):
        pass
    ran = await command("provision", "--json")
    fields = {refused["stream"]: refused["fields"] for refused in ran.json["refused"]}
    assert fields["FLIGHTLOG_0"] == ["its subjects have another prefix"]


async def test_replicas_are_those_that_were_asked_for(cluster: Cluster) -> None:
    ran = await Command({"FLIGHTLOG_NATS_URL": cluster.url})(
        "provision", "--replicas", "3", "--json"
    )
    assert (ran.code, ran.json["replicas"]) == (0, 3)


async def test_replicas_that_an_operator_changed_are_left_alone() -> None:
    there = layout.log_configs(1, replicas=3) + layout.side_configs(replicas=3)
    found = plan(Wish(), there)
    assert (found.create, found.refused, len(found.there)) == ([], [], 6)
    assert json.dumps(there)  # plain settings: what NACK or Terraform may have made


async def test_people_read_what_was_made(servers: Servers) -> None:
    ran = await flightlog(servers)("provision")
    assert "created    FLIGHTLOG_0" in ran.out
    assert "ready: 1 log stream, 1 replica" in ran.out


async def test_accounts_are_printed_for_the_server_without_a_secret(make_nats: MakeNats) -> None:
    command = Command({"FLIGHTLOG_TENANT": "acme"})
    ran = await command("provision", "--print-accounts", "--subscriber", "mailer")
    assert (ran.code, ran.err) == (0, "")
    users = (
        await command("provision", "--print-accounts", "--subscriber", "mailer", "--json")
    ).json
    assert {"acme-harness", "acme-subscriber-mailer", "acme-operator", "doctor"} <= users.keys()
    passwords = [f"FLIGHTLOG_PASSWORD_{name.replace('-', '_')}: a-secret" for name in users]
    server = make_nats(access="\n".join([*passwords, ran.out]))
    url = f"nats://acme-operator:a-secret@127.0.0.1:{server.port}"
    made = await Command({"FLIGHTLOG_NATS_URL": url, "FLIGHTLOG_TENANT": "acme"})("provision")
    assert (made.code, made.err) == (0, "")


@pytest.mark.parametrize("proof", ["password", "nkey"])
async def test_an_account_is_written_for_its_owner_alone_and_twice_is_the_same(
    tmp_path: Path, proof: str
) -> None:
    command, home = Command({}), tmp_path / "made"
    words = ("--tenant", "acme", "--subscriber", "mailer", "--proof", proof, "--output", str(home))
    first = await command("provision", *words)
    assert (first.code, first.err) == (0, "")
    made = contents(home)
    assert {path.stat().st_mode & 0o777 for path in home.rglob("*") if path.is_file()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in home.rglob("*") if path.is_dir()} == {0o700}
    secrets = [text for name, text in made.items() if name.endswith(("password", "nkey"))]
    assert len(set(secrets)) == len(secrets) == 11  # seven users of NATS, four of Redis
    assert [each for each in secrets if each.strip().decode() in first.out] == []
    again = await command("provision", *words)
    assert (again.out, contents(home)) == (first.out, made)
    await command("provision", "--tenant", "globex", "--output", str(home))
    kept = contents(home)
    assert {name: kept[name] for name in secrets_of(made)} == secrets_of(made)
    assert b"acme { include" in kept["nats/accounts.conf"]
    assert b"globex { include" in kept["nats/accounts.conf"]


def contents(home: Path) -> dict[str, bytes]:
    files = [path for path in home.rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


def secrets_of(made: dict[str, bytes]) -> dict[str, bytes]:
    return {name: text for name, text in made.items() if name.endswith(("password", "nkey"))}


async def test_no_secret_stands_where_servers_can_do_without(tmp_path: Path) -> None:
    words = ("--tenant", "acme", "--proof", "nkey", "--output", str(tmp_path))
    assert (await Command({})("provision", *words)).code == 0
    made = contents(tmp_path)
    told = b"".join(text for name, text in made.items() if name.startswith(("nats/", "redis/")))
    assert [name for name, text in secrets_of(made).items() if text.strip() in told] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--tenant", "acme", "--account", "other"), "a user of account acme has it"),
        (("--tenant", "new", "--account", "SYS"), "kept for the servers"),
        (
            (
                "--tenant",
                "a.b",
            ),
            "tenant",
        ),
    ],
)
async def test_names_that_mean_another_are_refused_and_nothing_is_written(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    command = Command({})
    await command("provision", "--tenant", "acme", "--output", str(tmp_path))
    made = contents(tmp_path)
    ran = await command("provision", *words, "--output", str(tmp_path))
    assert ran.code in {1, 2}
    assert why in ran.err
    assert contents(tmp_path) == made


async def test_a_secret_file_that_was_emptied_is_named_and_one_removed_is_made_anew(
    tmp_path: Path,
) -> None:
    command, words = Command({}), ("provision", "--tenant", "acme", "--output", str(tmp_path))
    await command(*words)
    secret = tmp_path / "users" / "acme" / "acme-harness" / "nats-password"
    before = secret.read_text()
    secret.write_text("")
    ran = await command(*words)
    assert ran.code == 3
    assert f"{secret} is empty" in ran.err
    secret.unlink()
    assert (await command(*words)).code == 0
    assert secret.read_text() not in {"", before}
    assert secret.read_text().strip() in (tmp_path / "nats" / "acme.conf").read_text()


async def test_logs_hold_what_they_are_told_and_the_account_holds_more(tmp_path: Path) -> None:
    words = ("--streams", "2", "--max-bytes", "1MiB")
    with handed.running(tmp_path, ("--tenant", "acme", *words)) as made:
        ran = await made.command("acme-operator")("provision", *words)
        assert (ran.code, ran.err) == (0, "")
        async with await nats_bus.connect_bare(made.boss("acme")) as bus:
            limits = {each["name"]: each["max_bytes"] for each in await bus.stream_configs()}
            told = (await bus.api("INFO"))["limits"]
        most = dict.fromkeys(("FLIGHTLOG_0", "FLIGHTLOG_1", "FLIGHTLOG_blobs"), 1 << 20)
        assert {name: limits[name] for name in most} == most
        assert set(limits.values()) == {1 << 20, -1}
        assert told["max_storage"] > 3 << 20
        async with made.log("acme-harness") as log:
            with pytest.raises(LogFull):
                async with log.session() as session:
                    for _ in range(20):
                        await session.user_message("x" * 200_000)


async def test_a_size_that_is_none_is_refused(servers: Servers) -> None:
    ran = await flightlog(servers)("provision", "--max-bytes", "much")
    assert (ran.code, "a size is" in ran.err) == (2, True)
