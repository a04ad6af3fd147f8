"""The compose file: three nodes that know each other, and services with their own settings."""

import re
from typing import Any
from urllib.parse import urlsplit

import yaml

from flightlog_recorder.cli import provision
from tests.deploy import settings_of
from tests.deploy.rendered import DEPLOY, PARTS

NODES = ("nats-1", "nats-2", "nats-3")
VALKEY_PORT = "6379"  # its default, as no option says another


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def ours(found: dict[str, Any]) -> dict[str, Any]:
    """The services that run an image of ours."""
    return {name: each for name, each in found.items() if each["image"].startswith("flightlog/")}


def test_three_nodes_route_to_each_other_and_keep_a_store_each() -> None:
    config = (DEPLOY / "nats" / "cluster.conf").read_text()
    nodes = {name: services()[name] for name in NODES}
    for name in NODES:
        assert f"nats://{name}:6222" in config
    assert len({node["environment"]["SERVER_NAME"] for node in nodes.values()}) == 3
    assert len({node["volumes"][1] for node in nodes.values()}) == 3
    for node in nodes.values():
        source, target, _ = node["volumes"][0].split(":")
        assert (DEPLOY / source).is_file()
        assert node["command"] == ["--config", target]


def test_every_port_is_one_that_its_server_listens_on() -> None:
    found, config = services(), (DEPLOY / "nats" / "cluster.conf").read_text()
    top = dict(re.findall(r"^(listen|http): 0\.0\.0\.0:(\d+)$", config, re.MULTILINE))
    listened = {**{name: set(top.values()) for name in NODES}, "valkey": {VALKEY_PORT}}
    for name, service in found.items():
        for port in service.get("ports", ()):
            assert port.rpartition(":")[2] in listened[name], port
    for name in NODES:
        assert f"http://127.0.0.1:{top['http']}/healthz" in found[name]["healthcheck"]["test"]
    for service in ours(found).values():
        for url in service["environment"]["FLIGHTLOG_NATS_URL"].split(","):
            assert url in {f"nats://{name}:{top['listen']}" for name in NODES}
        redis = urlsplit(service["environment"]["FLIGHTLOG_REDIS_URL"])
        assert (redis.scheme, redis.hostname, str(redis.port)) == ("redis", "valkey", VALKEY_PORT)


def test_everything_that_is_waited_for_is_there_and_can_be_told_to_be_ready() -> None:
    found = services()
    for service in found.values():
        for name, wanted in service.get("depends_on", {}).items():
            if wanted["condition"] == "service_healthy":
                assert "healthcheck" in found[name]
            else:
                assert found[name]["restart"] == "on-failure"  # it ends, and not for ever


def test_every_part_of_ours_is_built_here_and_its_state_outlives_no_restart_but_natss() -> None:
    found = services()
    built = {each["image"] for each in found.values() if "build" in each}
    assert {each["image"] for each in ours(found).values()} == built
    for service in found.values():
        if build := service.get("build"):
            part = build["args"]["PART"]
            assert service["image"].startswith(f"flightlog/{part}:")
            assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    volumes = {volume for each in found.values() for volume in each.get("volumes", ())}
    assert {each.partition(":")[0] for each in volumes if each[0] != "."} == set(NODES)


def test_every_variable_is_one_that_the_part_reads() -> None:
    for service in ours(services()).values():
        part = service["image"].removeprefix("flightlog/").partition(":")[0]
        given = service["environment"].keys()
        assert given <= settings_of.readable(part, command="command" in service)
        urls = service["environment"]["FLIGHTLOG_NATS_URL"].split(",")
        assert urls == [f"nats://{name}:4222" for name in NODES]


def test_the_streams_are_made_before_anything_looks_for_them() -> None:
    found = services()
    command, *options = found["provision"]["command"][1:]
    assert command == provision.provision.__name__
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--streams": "8",
        "--replicas": "3",
    }
    for part in (*PARTS, "agent"):
        assert found[part]["depends_on"] == {
            "provision": {"condition": "service_completed_successfully"}
        }


def test_two_projectors_share_the_work_and_everything_gets_time_to_drain() -> None:
    found = services()
    assert found["projector"]["deploy"]["replicas"] == 2
    drain = settings_of.default("projector", "drain_timeout")
    assert int(found["projector"]["stop_grace_period"].removesuffix("s")) > drain


def test_nothing_listens_beyond_loopback_and_ours_write_nothing_to_their_image() -> None:
    for service in services().values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        if not service["image"].startswith("nats:"):
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
