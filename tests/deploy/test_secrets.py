"""Secrets come as files: what the manifests mount is what the programs read."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flightlog.bus import access
from flightlog_projector.settings import Settings as ProjectorSettings
from flightlog_recorder.service.settings import Settings as RecorderSettings
from tests.deploy import settings_of
from tests.deploy.rendered import containers, of_kind, overlay, part_of, workloads

NATS, REDIS = "nats://nats:4222", "redis://valkey:6379/0"


def unpacked(pod: Mapping[str, Any], home: Path) -> Path:
    """The pod's secret as the files that the kubelet makes of it."""
    [name] = [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each]
    [secret] = [
        each for each in of_kind(overlay("dev"), "Secret") if each["metadata"]["name"] == name
    ]
    for file, text in secret["data"].items():
        (home / file).write_bytes(base64.b64decode(text))
    return home


def found_by(part: str | None) -> tuple[list[str], str | None]:
    """The servers that a part's program goes to, of NATS and of Redis."""
    match part:
        case "projector":
            projector = ProjectorSettings()
            return projector.nats().servers, projector.redis()
        case "recorder":
            recorder = RecorderSettings()
            return recorder.nats().servers, recorder.redis()
        case _:
            return access.resolve().servers, access.redis_url()


@pytest.mark.parametrize("name", ["flightlog-projector", "flightlog-recorder", "flightlog-agent"])
def test_each_program_finds_its_servers_in_the_files_that_are_mounted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = workloads("dev")[name]
    home = unpacked(pod, tmp_path)
    *_, container = containers(pod)
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "secrets"]
    for variable, value in settings_of.environment(container).items():
        if isinstance(value, str):
            monkeypatch.setenv(variable, value.replace(mount["mountPath"], str(home)))
    assert found_by(part_of(container)) == ([NATS], REDIS)
