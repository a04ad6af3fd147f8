"""The settings of NATS that we ship: the server takes them, and syncs before every ack."""

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from flightlog import NotPermitted
from flightlog.bus import nats_bus
from flightlog.wire import layout
from flightlog_recorder.access.accounts import of_tenants
from flightlog_recorder.access.handout import Handout, Servers
from flightlog_recorder.embedded import Nats, Server
from flightlog_recorder.embedded.binary import nats_server
from flightlog_recorder.provision import Wish, plan
from tests.deploy import settings_of
from tests.deploy.rendered import (
    DEPLOY,
    Resource,
    component,
    containers,
    of_kind,
    overlay,
    render,
    workloads,
)

CONFIGS = [DEPLOY / "nats" / "cluster.conf", DEPLOY / "k8s" / "overlays" / "dev" / "nats.conf"]
ACCOUNT = "FLIGHTLOG"
# NACK's word for a stream's setting, where it is not the server's in camel case.
NACKS_WORDS = {
    "allowAtomicPublish": "allow_atomic",
    "allowMsgTtl": "allow_msg_ttl",
    "allowRollup": "allow_rollup_hdrs",
    "replicas": "num_replicas",
}
NACKS_OWN = {"preventDelete"}
NANOSECONDS = 1_000_000_000


def check(config: Path, **environment: str) -> str:
    """What the server says of a configuration file."""
    done = subprocess.run(
        [nats_server(), "-t", "-c", config],
        env=os.environ | {"SERVER_NAME": "n1", "POD_NAME": "nats-0"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.parent.name)
def test_the_server_takes_each_file(config: Path) -> None:
    assert "is valid" in check(config)
    assert "sync_interval: always" in config.read_text()


def values() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load((DEPLOY / "nats" / "values.yaml").read_text())
    return found


def as_the_chart_renders(config: Mapping[str, Any]) -> str:
    """The part of the chart's nats.conf that our values decide."""
    stream, cluster = config["jetstream"], config["cluster"]
    store = stream["fileStore"]
    made = {
        "server_name": "<< $POD_NAME >>",
        "http_port": config["monitor"]["port"],
        "jetstream": {
            "store_dir": store["dir"],
            "max_file_store": f"<< {store['pvc']['size']} >>",
            "max_memory_store": 0,
            **stream["merge"],
        },
        "cluster": {"name": "nats", "port": 6222, "routes": ["nats://nats-0:6222"]},
        **config["merge"],
    }
    assert cluster == {"enabled": True, "replicas": 3}
    text = json.dumps(made, indent=1)
    text = re.sub(r'"<< (.*?) >>"', r"\1", text)
    return re.sub(r'"\$include": "(.*?)",?', r"include \1;", text)


def test_the_server_takes_what_the_chart_makes_of_our_values(tmp_path: Path) -> None:
    """With the directory that the command makes mounted as it is."""
    config = tmp_path / "nats-config" / "nats.conf"
    config.parent.mkdir()
    made = Handout(tmp_path / "made", Servers("nats://nats:4222", "redis://valkey:6379/0"))
    made.give(of_tenants(ACCOUNT, ["default"], streams=8))
    accounts = tmp_path / "nats-accounts"
    made.nats.rename(accounts)
    config.write_text(as_the_chart_renders(values()["config"]))
    assert "is valid" in check(config)
    (accounts / "accounts.conf").unlink()
    assert "is valid" not in check(config)


def test_the_command_on_the_page_makes_the_account_and_tenant_of_the_manifests() -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    [cron] = [each for each in workloads("production").values() if "agent" in str(each)]
    [agent] = containers(cron)
    tenant = settings_of.environment(agent)["FLIGHTLOG_TENANT"]
    assert f"provision --tenant {tenant} --account {ACCOUNT} " in page
    words = re.sub(" +", " ", page)
    for part in ("projector", "recorder"):
        assert f"flightlog-{part} --from-file=made/users/{ACCOUNT}/{ACCOUNT}-{part}\n" in words
    assert f"flightlog-agent --from-file=made/users/{ACCOUNT}/{tenant}-harness\n" in words


def triggers(resources: list[Resource]) -> list[Mapping[str, str]]:
    [scaled] = of_kind(resources, "ScaledObject")
    return [each["metadata"] for each in scaled["spec"]["triggers"]]


def test_autoscaling_looks_into_the_account_that_is_made_at_the_port_that_is_open() -> None:
    port = values()["config"]["monitor"]["port"]
    for each in triggers(overlay("production")):
        assert each["account"] == ACCOUNT
        assert each["natsServerMonitoringEndpoint"].endswith(f".svc.cluster.local:{port}")


def test_account_and_address_of_nats_are_set_in_one_place_for_all_triggers(tmp_path: Path) -> None:
    copied = shutil.copytree(DEPLOY / "k8s", tmp_path / "k8s") / "overlays" / "production"
    text = (copied / "nats.yaml").read_text()
    elsewhere = {ACCOUNT: "AGENTS", "nats.nats.svc.cluster.local": "nats.bus.svc.cluster.local"}
    for ours, theirs in elsewhere.items():
        assert text.count(f" {ours}") == 1
        text = text.replace(f" {ours}", f" {theirs}")
    (copied / "nats.yaml").write_text(text)
    found = triggers(render(copied))
    assert len(found) == 8
    for each in found:
        assert each["account"] == "AGENTS"
        assert each["natsServerMonitoringEndpoint"] == "nats.bus.svc.cluster.local:8222"


def test_page_triggers_and_streams_for_nack_agree_on_how_many_streams_there_are() -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    made = set(re.findall(r"--streams\s+(\d+)", page))
    watched = {each["stream"] for each in triggers(overlay("production"))}
    logs = {each["spec"]["name"] for each in component("streams")}
    assert made == {str(len(watched))}
    assert watched == {name for name in logs if re.fullmatch(r"FLIGHTLOG_\d+", name)}


def test_no_password_stands_in_what_production_ships() -> None:
    """They come from secrets, which the page's command makes at random, a user each."""
    assert not list(of_kind(overlay("production"), "Secret"))
    shipped = [(DEPLOY / "nats" / "values.yaml").read_text(), json.dumps(overlay("production"))]
    for text in shipped:
        settings = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        assert not re.search(r"://[^/\s\"]*@|passw|no_auth_user|nkey|\"?token\"?:", settings)
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    [volume] = [each["value"] for each in values()["podTemplate"]["patch"]]
    secret = volume["secret"]["secretName"]
    assert f"-n nats create secret generic {secret} --from-file=made/nats" in page


async def test_nobody_gets_in_without_a_user_of_the_accounts(tmp_path: Path) -> None:
    """On a real server, with the accounts that the page's command makes."""
    made = Handout(tmp_path / "made", Servers("nats://nats:4222", "redis://valkey:6379/0"))
    made.give(of_tenants(ACCOUNT, ["default"], streams=8))
    server = Server(Nats(access='include "../made/nats/accounts.conf"'), tmp_path / "nats")
    with contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        server.start()
        for who in ("", "admin:admin@", f"{ACCOUNT}-projector:{ACCOUNT}-projector@"):
            with pytest.raises(NotPermitted):
                await nats_bus.connect_bare(f"nats://{who}127.0.0.1:{server.port}")


def test_the_accounts_are_mounted_where_the_settings_include_them_from() -> None:
    found = values()
    included = (Path("/etc/nats-config") / found["config"]["merge"]["$include"]).parent
    for part in ("container", "reloader"):
        [patch] = found[part]["patch"]
        assert os.path.normpath(included) == patch["value"]["mountPath"]


def test_an_ack_waits_for_the_disks_of_a_majority() -> None:
    config = values()["config"]
    assert config["jetstream"]["merge"]["sync_interval"] == "always"
    assert config["cluster"]["replicas"] == 3
    assert config["jetstream"]["fileStore"]["pvc"]["enabled"]


def as_nack_sends(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The stream's settings in the server's words."""
    made: dict[str, Any] = {}
    for word, value in spec.items():
        if word in NACKS_OWN:
            continue
        snake = re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", word)
        made[NACKS_WORDS.get(word, snake)] = value
    if age := made.get("max_age"):
        made["max_age"] = int(age.removesuffix("h")) * 3600 * NANOSECONDS
    return made


async def test_streams_that_nack_made_are_accepted_and_nothing_is_changed(nats_url: str) -> None:
    wanted = [as_nack_sends(each["spec"]) for each in component("streams")]
    assert {each["num_replicas"] for each in wanted} == {3}
    bare = await nats_bus.connect_bare(nats_url)
    async with bare:
        await nats_bus.create(bare, [{**each, "num_replicas": 1} for each in wanted])
        found = await bare.stream_configs()
        made = plan(Wish(streams=8), found)
        assert (made.create, made.refused) == ([], [])
        assert len(made.there) == len(wanted)
        assert len(layout.read_layout(found).streams) == 8


def test_the_streams_for_nack_are_those_that_provision_makes() -> None:
    mine = layout.log_configs(8, replicas=3) + layout.side_configs(replicas=3)
    theirs = {each["spec"]["name"]: as_nack_sends(each["spec"]) for each in component("streams")}
    assert theirs.keys() == {config["name"] for config in mine}
    for config in mine:
        wanted = {**config, "subjects": sorted(config["subjects"])}
        assert layout.differences(wanted, theirs[config["name"]]) == []
        assert theirs[config["name"]]["num_replicas"] == 3
        assert theirs[config["name"]]["compression"] == config.get("compression", "none")
