"""What the overlays render to, as a cluster would get it."""

import functools
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("dev", "production")
PARTS = ("projector", "recorder")

Resource = Mapping[str, Any]


@functools.cache
def overlay(name: str) -> list[Resource]:
    """All resources of an overlay; skips where kubectl is missing."""
    return render(DEPLOY / "k8s" / "overlays" / name)


def component(name: str) -> list[Resource]:
    """The resources that a component holds, as they are written."""
    folder = DEPLOY / "k8s" / "components" / name
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    return [each for file in found for each in yaml.safe_load_all((folder / file).read_text())]


def render(folder: Path) -> list[Resource]:
    """The resources of any overlay; skips where kubectl is missing."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: the manifests were not rendered")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def is_native(resource: Resource) -> bool:
    """Whether Kubernetes itself knows the kind."""
    group = resource["apiVersion"].partition("/")[0]
    return "." not in group or group.endswith(".k8s.io")


def of_kind(resources: list[Resource], kind: str) -> Iterator[Resource]:
    """The resources of one kind."""
    return (each for each in resources if each["kind"] == kind)


def pod_of(resource: Resource) -> Mapping[str, Any] | None:
    """The pod template of a workload, or None."""
    match resource["kind"]:
        case "Deployment" | "StatefulSet" | "Job":
            template: Mapping[str, Any] = resource["spec"]["template"]
            return template
        case "CronJob":
            inner: Mapping[str, Any] = resource["spec"]["jobTemplate"]["spec"]["template"]
            return inner
        case _:
            return None


def workloads(name: str) -> dict[str, Mapping[str, Any]]:
    """The pod templates of an overlay, by the workload's name."""
    found = [(each["metadata"]["name"], pod_of(each)) for each in overlay(name)]
    return {workload: pod for workload, pod in found if pod is not None}


def containers(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All containers of a pod template, those that run first too."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def part_of(container: Mapping[str, Any]) -> str | None:
    """Which of our parts an image is: projector, recorder or agent."""
    name = str(container["image"]).partition(":")[0]
    return name.removeprefix("flightlog/") if name.startswith("flightlog/") else None
