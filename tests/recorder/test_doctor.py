"""`flightlog doctor` on one machine: each line once well and once broken, on real servers."""

import pytest

from flightlog_recorder.embedded import Servers
from tests.recorder.command import Ran, flightlog

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

LINES = [
    "server versions",
    "replicas",
    "sync_always",
    "stream settings",
    "stream room",
    "permissions",
    "max_payload",
    "redis eviction",
    "redis memory",
    "clocks",
    "projector lag",
    "subscriber lag",
    "projector progress",
]


def lines(ran: Ran, check: str) -> list[dict[str, str]]:
    """What a command found about one thing."""
    found: list[dict[str, str]] = ran.json["findings"]
    return [each for each in found if each["check"] == check]


def grades(ran: Ran, check: str) -> set[str]:
    return {each["grade"] for each in lines(ran, check)}


async def test_every_line_of_the_list_is_there_once_and_in_order(servers: Servers) -> None:
    await flightlog(servers)("provision")
    ran = await flightlog(servers)("doctor", "--json")
    assert list(dict.fromkeys(each["check"] for each in ran.json["findings"])) == LINES
