"""The compose file: three nodes that know each other, and services with their own settings."""

from typing import Any

import yaml

from flightlog_recorder.cli import provision
from tests.deploy import settings_of
from tests.deploy.rendered import DEPLOY, PARTS

NODES = ("nats-1", "nats-2", "nats-3")


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


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


def test_every_variable_is_one_that_the_part_reads() -> None:
    for service in services().values():
        if not str(service["image"]).startswith("flightlog/"):
            continue
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
