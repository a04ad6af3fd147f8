"""`flightlog subscribe` as its users have it: real programs, a real HTTP server, a real broker."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flightlog import Log, connect
from flightlog.subscribing import standing
from flightlog_recorder.cli import target
from flightlog_recorder.embedded import Servers
from tests.recorder.command import Command, Running, flightlog
from tests.scripted import TENANT, until

SECRET = "whsec_" + base64.b64encode(b"k" * 24).decode()

NOTIFY = """
import json, os, pathlib, sys
folder = pathlib.Path(sys.argv[1])
event = json.load(sys.stdin)
told = {name: os.environ["FLIGHTLOG_" + name] for name in
        ("DELIVERY_ID", "SESSION", "SEQ", "TYPE", "ATTEMPT")}
with open(folder / "notified", "a") as notified:
    notified.write(json.dumps([told, event]) + "\\n")
sys.exit(7 if (folder / "broken").exists() else 0)
"""


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as opened:
        yield opened


@pytest.fixture
def run(servers: Servers) -> Command:
    return flightlog(servers)


@asynccontextmanager
async def listening(log: Log, run: Command, *arguments: str) -> AsyncGenerator[Running]:
    """The command, once its name is known to the broker."""
    name = arguments[arguments.index("--name") + 1]
    async with run.running("subscribe", *arguments) as running:
        await until(lambda: known(log, name), timeout=15)
        yield running


async def known(log: Log, name: str) -> bool:
    """Whether the subscriber has its consumer in each stream."""
    bus = target.bus_of(log)
    places = [f"{each}.{name}@{TENANT}" for each in standing.streams(bus)]
    found = [await bus.api(f"CONSUMER.INFO.{each}") for each in places]
    return all("error" not in each for each in found)


async def notes(log: Log, *texts: object) -> str:
    async with log.session() as session:
        for text in texts:
            await session.append("note", text)
    return session.id


def program(folder: Path) -> str:
    (folder / "notify.py").write_text(NOTIFY)
    return f"{sys.executable} {folder / 'notify.py'} {folder}"


def notified(folder: Path) -> list[Any]:
    path = folder / "notified"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_program_gets_each_event_once_with_its_id(
    log: Log, run: Command, tmp_path: Path
) -> None:
    asked = ("--name", "n", "--type", "note", "--exec", program(tmp_path))
    async with listening(log, run, *asked) as running:
        session = await notes(log, "a", "b")
        await until(lambda: len(notified(tmp_path)) == 2)
        assert await running.stop() == 0
    told, event = notified(tmp_path)[1]
    assert told == {
        "DELIVERY_ID": f"{session}/3",
        "SESSION": session,
        "SEQ": "3",
        "TYPE": "note",
        "ATTEMPT": "1",
    }
    assert (event["seq"], event["payload"]) == (3, "b")
    lag = await run("subscribe", "--lag", "--json")
    assert lag.json["subscribers"] == [
        {"subscriber": "n", "waiting": 0, "in_hand": 0, "dead": 0, "lag": 0}
    ]


async def test_what_a_program_refuses_is_listed_shown_and_sent_again(
    log: Log, run: Command, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    asked = ("--name", "n", "--type", "note", "--attempts", "2", "--exec", program(tmp_path))
    async with listening(log, run, *asked):
        session = await notes(log, "hello there")
        await until(lambda: len(notified(tmp_path)) == 2)

        async def letters() -> list[Any]:
            found: list[Any] = (await run("subscribe", "--dead", "--json")).json["letters"]
            return found

        (letter,) = await until(letters)
        assert (letter["id"], letter["reason"], letter["attempts"]) == (
            f"{session}/2",
            "exit code 7",
            2,
        )
        shown = await run("subscribe", "--dead", letter["id"])
        assert "exit code 7" in shown.out
        assert "hello there" in shown.out
        (tmp_path / "broken").unlink()
        sent = await run("subscribe", "--dead", "--resend", "--name", "n")
        assert (sent.code, sent.out) == (0, "1 dead letter sent again\n")
        await until(lambda: len(notified(tmp_path)) == 3)
        assert notified(tmp_path)[2][0]["DELIVERY_ID"] == letter["id"]
    assert await letters() == []


async def test_of_a_letter_that_several_subscribers_have_only_the_one_that_is_named_is_meant(
    log: Log, run: Command, tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    asked = ("--type", "note", "--attempts", "1", "--exec", program(tmp_path))
    a, b = ("--name", "a", *asked), ("--name", "b", *asked)
    async with listening(log, run, *a), listening(log, run, *b):
        session = await notes(log, "hello")

        async def letters() -> list[str]:
            found = (await run("subscribe", "--dead", "--json")).json["letters"]
            return sorted(str(each["name"]) for each in found)

        async def both() -> bool:
            return await letters() == ["a", "b"]

        await until(both)
        drop = ("subscribe", "--dead", f"{session}/2", "--drop")
        ran = await run(*drop)
        assert (ran.code, ran.out) == (2, "")
        assert "give --name, of a, b" in ran.err
        assert (await run(*drop, "--name", "a")).out == "1 dead letter forgotten\n"
        assert await letters() == ["b"]


async def test_a_type_that_nobody_knows_is_listened_for_and_said(log: Log, run: Command) -> None:
    async with listening(log, run, "--name", "n", "--type", "tool_cal", "--type", "note") as ours:
        await ours.stop()
        said = (await ours.ended()).err
    assert "tool_cal is no type of Flightlog's own" in said


async def test_a_program_that_hangs_is_killed_with_all_it_started(
    log: Log, run: Command, tmp_path: Path
) -> None:
    script = tmp_path / "hang.sh"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n")
    script.chmod(0o755)
    asked = ("--name", "n", "--type", "note", "--timeout", "0.5", "--attempts", "1")
    async with listening(log, run, *asked, "--exec", str(script)):
        await notes(log, "a")

        async def letters() -> list[Any]:
            found: list[Any] = (await run("subscribe", "--dead", "--json")).json["letters"]
            return found

        (letter,) = await until(letters)
    assert letter["reason"] == "it ran for more than 0.5 s"
    pid = int((tmp_path / "pid").read_text())
    await until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" in status.read_text()
    return True


async def test_a_subscriber_killed_over_an_event_leaves_it_to_the_next(
    log: Log, run: Command, tmp_path: Path
) -> None:
    script = tmp_path / "hang.sh"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    script.chmod(0o755)
    asked = ("--name", "n", "--type", "note")
    async with listening(log, run, *asked, "--exec", str(script)) as first:
        await notes(log, "a")
        pid = int(await until(lambda: said(tmp_path / "pid")))
        for each in (first.pid, pid):  # what it ran outlives it, as its process group is its own
            os.kill(each, signal.SIGKILL)
        await first.ended()
    rows = await standing.standings(target.bus_of(log), TENANT)
    assert [row.in_hand for row in rows if row.name == "n"] == [1]


def said(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


@dataclass
class Receiver:
    """An HTTP server that remembers what was posted, and answers as its script says."""

    script: list[bytes]
    posted: list[tuple[dict[str, str], bytes]] = field(
        default_factory=list[tuple[dict[str, str], bytes]]
    )
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = [line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line]
        headers = {name.lower(): value for name, value in lines}
        body = await reader.readexactly(int(headers["content-length"]))
        self.posted.append((headers, body))
        answer = self.script.pop(0) if self.script else b"204 No Content"
        writer.write(b"HTTP/1.1 " + answer + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiving(*script: bytes) -> AsyncGenerator[Receiver]:
    receiver = Receiver(list(script))
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?token=hidden"
        yield receiver


async def test_a_url_gets_each_event_signed_and_again_until_it_takes_it(
    log: Log, servers: Servers
) -> None:
    run = Command(
        {
            "FLIGHTLOG_NATS_URL": servers.nats_url,
            "FLIGHTLOG_TENANT": TENANT,
            "FLIGHTLOG_WEBHOOK_SECRET": SECRET,
            "FLIGHTLOG_WEBHOOK_HEADER": "Authorization: Bearer b",
        }
    )
    async with receiving(b"503 Busy") as receiver:
        asked = ("--name", "n", "--type", "note", "--webhook", receiver.url)
        async with listening(log, run, *asked) as running:
            session = await notes(log, "a")
            await until(lambda: len(receiver.posted) == 2)
            await running.stop()
            ended = await running.ended()
    assert "HTTP 503" in ended.err
    assert "hidden" not in ended.err
    headers, body = receiver.posted[1]
    assert json.loads(body)["payload"] == "a"
    assert (headers["webhook-id"], headers["authorization"]) == (f"{session}/2", "Bearer b")
    assert (headers["flightlog-session"], headers["flightlog-seq"]) == (session, "2")
    assert (headers["flightlog-type"], headers["flightlog-attempt"]) == ("note", "2")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.digest(b"k" * 24, signed, hashlib.sha256)
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


async def test_a_url_that_never_takes_it_makes_a_dead_letter(log: Log, run: Command) -> None:
    async with receiving(b"400 No") as receiver:
        asked = ("--name", "n", "--type", "note", "--attempts", "1", "--webhook", receiver.url)
        async with listening(log, run, *asked):
            await notes(log, "a")

            async def reasons() -> list[str]:
                found = (await run("subscribe", "--dead", "--json")).json["letters"]
                return [each["reason"] for each in found]

            assert await until(reasons) == ["HTTP 400"]
    dropped = await run("subscribe", "--dead", "--drop", "--name", "n")
    assert dropped.out == "1 dead letter forgotten\n"


async def test_without_a_receiver_events_are_printed_as_they_are_stored(
    log: Log, run: Command
) -> None:
    async with listening(log, run, "--name", "n", "--type", "note") as running:
        session = await notes(log, "a")
        async with asyncio.timeout(15):
            line = json.loads(await running.line())
        assert (line["session_id"], line["payload"]) == (session, "a")
        assert await running.stop(signal.SIGINT) == 0


async def test_a_removed_subscriber_is_forgotten(log: Log, run: Command) -> None:
    async with log.subscribe("n"):
        pass
    assert (await run("subscribe", "--remove", "--name", "n")).out == "n: removed\n"
    again = await run("subscribe", "--remove", "--name", "n")
    assert (again.code, again.out) == (1, "n: there is no such subscriber\n")
    assert (await run("subscribe", "--lag", "--json")).json == {"subscribers": []}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--name", "n", "--exec", "true", "--webhook", "http://h"),
        ("--name", "n", "--exec", "no-such-program-here"),
        ("--name", "n", "--exec", "'"),
        ("--name", "n", "--start", "2026-05-06"),
        ("--name", "a@b"),
        ("--dead", "--resend"),
        ("--dead", "--resend", "--drop"),
    ],
)
async def test_what_cannot_be_meant_is_wrong_usage(run: Command, arguments: tuple[str]) -> None:
    ran = await run("subscribe", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("url", ["ftp://host/x", "nowhere", "http:///path"])
async def test_what_is_no_url_is_refused_without_being_repeated(run: Command, url: str) -> None:
    ran = await run("subscribe", "--name", "n", "--webhook", url)
    assert ran.code == 1
    assert url not in ran.err
