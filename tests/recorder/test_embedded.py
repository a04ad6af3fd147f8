"""The embedded servers: private, on loopback, behind a token, on disk, one owner at a time."""

import json
import os
import socket
import stat
import sys
import urllib.request
from pathlib import Path

import nats
import nats.errors
import pytest
import redis
from nats.aio.client import Client

from flightlog_recorder.embedded import (
    AlreadyRunning,
    DataRefused,
    Nats,
    Server,
    ServerFailed,
    Servers,
    Valkey,
    embedded,
    endpoint,
    servers,
)
from flightlog_recorder.embedded.binary import nats_server
from flightlog_recorder.embedded.server import running

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def publish(url: str, text: bytes) -> int:
    """Store one message in a stream of its own; its stream sequence."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="KEPT", subjects=["kept"])
        return (await stream.publish("kept", text)).seq
    finally:
        await client.close()


async def stored(url: str) -> list[bytes]:
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        last = (await stream.stream_info("KEPT")).state.last_seq
        return [(await stream.get_msg("KEPT", seq)).data or b"" for seq in range(1, last + 1)]
    finally:
        await client.close()


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every path below `root` with its mode and its time of change."""
    found = [root, *root.rglob("*")]
    return {str(path): (path.stat().st_mode, path.stat().st_mtime_ns) for path in found}


def listening_addresses(pid: int) -> set[str]:
    """The local addresses, in the kernel's hex, on which a process accepts connections."""
    own = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    listen = "0A"
    return {
        row[1].partition(":")[0] for row in rows if row[3] == listen and f"socket:[{row[9]}]" in own
    }


async def test_what_was_acked_survives_a_stop_and_a_new_start(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as first:
        await publish(first.nats_url, b"one")
        with redis.Redis.from_url(first.redis_url) as client:
            client.set("kept", "yes")
    with embedded(tmp_path / "data") as second:
        assert second.environment() == first.environment()
        assert await stored(second.nats_url) == [b"one"]
        with redis.Redis.from_url(second.redis_url) as client:
            assert client.get("kept") == b"yes"


async def test_what_was_acked_survives_the_servers_sudden_death(nats_server: Server) -> None:
    await publish(nats_server.url, b"one")
    url = nats_server.url
    nats_server.kill()
    assert not nats_server.running
    nats_server.start()
    assert nats_server.url == url
    assert await stored(url) == [b"one"]


def test_jetstream_syncs_before_every_ack(tmp_path: Path) -> None:
    monitor = endpoint.fresh("monitor").port
    with (
        running(Nats(extra=f"http: 127.0.0.1:{monitor}"), tmp_path / "nats"),
        urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=5) as answer,
    ):
        settings = json.load(answer)["jetstream"]["config"]
    assert settings["sync_always"] is True


def test_data_is_private_to_its_user(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as found:
        assert found.data is not None
        paths = [found.data, *found.data.rglob("*")]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    for path, mode in modes.items():
        assert mode & 0o077 == 0, f"{path} has mode {mode:o}"
    assert modes[found.data] == 0o700


def test_a_directory_that_was_readable_by_all_becomes_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with embedded(data):
        assert stat.S_IMODE(data.stat().st_mode) == 0o700


@needs_proc
def test_servers_listen_on_loopback_only(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as found:
        assert found.nats
        assert found.redis
        loopback = "0100007F"
        assert listening_addresses(found.nats.pid) == {loopback}
        assert listening_addresses(found.redis.pid) == {loopback}


@pytest.mark.parametrize("secret", ["", "wrong@"])
async def test_nats_refuses_whoever_lacks_the_token(nats_server: Server, secret: str) -> None:
    url = f"nats://{secret}127.0.0.1:{nats_server.port}"
    client = Client()
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await client.connect(url, allow_reconnect=False, error_cb=_quiet)
    await client.close()


async def _quiet(_: Exception) -> None:
    """The error is raised too; the default callback would log it."""


@pytest.mark.parametrize("secret", ["", ":wrong@"])
def test_redis_refuses_whoever_lacks_the_token(shared_redis: Server, secret: str) -> None:
    with (
        redis.Redis.from_url(f"redis://{secret}127.0.0.1:{shared_redis.port}") as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


@needs_proc
def test_tokens_are_in_no_command_line_no_log_and_no_repr(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as found:
        shown = repr(found)
        for server in (found.nats, found.redis):
            assert server
            shown += Path(f"/proc/{server.pid}/cmdline").read_text() + server.log.read_text()
        for url in (found.nats_url, found.redis_url):
            token = url.partition("//")[2].partition("@")[0].lstrip(":")
            assert len(token) >= 32
            assert token not in shown


def test_a_second_start_on_the_same_data_says_so_and_changes_nothing(tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as first:
        assert first.redis
        before = tree(tmp_path / "data")
        with pytest.raises(AlreadyRunning) as refused, embedded(tmp_path / "data"):
            pass
        assert refused.value.pid == os.getpid()
        assert str(tmp_path / "data") in str(refused.value)
        after = tree(tmp_path / "data")
        volatile = {path for path in after if "/store" in path}
        assert {p: after[p] for p in after if p not in volatile} == {
            p: before[p] for p in before if p not in volatile
        }
        with redis.Redis.from_url(first.redis_url) as client:
            assert client.ping()


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    before = tree(tmp_path)
    with pytest.raises(DataRefused, match="not ours"), embedded(tmp_path):
        pass
    assert tree(tmp_path) == before


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataRefused, match="not a directory"), embedded(tmp_path / "data"):
        pass


def test_a_data_path_may_hold_spaces_quotes_and_umlauts(tmp_path: Path) -> None:
    with embedded(tmp_path / "my \"däta\" $HOME 'x' #1") as found:
        assert found.data
        assert (found.data / "nats" / "store" / "jetstream").is_dir()
        assert (found.data / "valkey" / "store" / "appendonlydir").is_dir()


def test_without_data_nothing_stays_behind() -> None:
    with embedded() as found:
        assert found.data
        assert found.data.is_dir()
    assert not found.data.exists()
    assert found.nats
    assert found.redis
    assert not found.nats.running
    assert not found.redis.running


def test_servers_that_the_environment_names_are_used_as_they_are() -> None:
    given = {"FLIGHTLOG_NATS_URL": "nats://theirs:4222", "FLIGHTLOG_REDIS_URL": "redis://theirs"}
    with servers(environ=given) as found:
        assert found.environment() == given
        assert (found.data, found.nats, found.redis) == (None, None, None)


def test_only_the_server_that_nobody_named_is_started(tmp_path: Path) -> None:
    with servers(tmp_path / "data", environ={"FLIGHTLOG_NATS_URL": "nats://theirs"}) as found:
        assert found.nats is None
        assert found.nats_url == "nats://theirs"
        with redis.Redis.from_url(found.redis_url) as client:
            assert client.ping()


async def test_a_port_that_others_took_meanwhile_is_given_up(tmp_path: Path) -> None:
    with running(Nats(), tmp_path / "nats") as server:
        port, url = server.port, server.url
        await publish(url, b"one")
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        stranger.settimeout(0)
        with running(Nats(), tmp_path / "nats") as server:
            assert server.port != port
            assert await stored(server.url) == [b"one"]


def test_valkey_too_gives_up_a_taken_port(tmp_path: Path) -> None:
    with running(Valkey(), tmp_path / "valkey") as server:
        port = server.port
    with (
        socket.create_server(("127.0.0.1", port)),
        running(Valkey(), tmp_path / "valkey") as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert server.port != port
        assert client.ping()


def test_a_server_that_refuses_its_settings_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    with (
        pytest.raises(ServerFailed, match=r"nats did not start: .*no_such_setting"),
        running(Nats(extra="no_such_setting: 1"), tmp_path / "nats"),
    ):
        pass


def test_a_paused_server_answers_again_after_resume(redis_server: Server) -> None:
    with redis.Redis.from_url(redis_server.url, socket_timeout=0.2, retry=None) as client:
        assert client.ping()
        redis_server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        redis_server.resume()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_a_nats_server_on_path_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    nats_server.cache_clear()
    try:
        assert nats_server() != old
    finally:
        nats_server.cache_clear()


def test_a_test_finds_both_servers_empty(servers: Servers) -> None:
    with redis.Redis.from_url(servers.redis_url) as client:
        assert client.dbsize() == 0
    assert servers.nats
    assert servers.nats.running
