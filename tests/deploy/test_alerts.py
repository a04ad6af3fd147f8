"""Alerts and dashboard: built on counters that the services really have, and explained."""

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from flightlog_recorder.embedded import Servers
from tests.deploy.rendered import DEPLOY, ROOT, component, of_kind
from tests.projector.conftest import environment, page

MODULES = ("flightlog_projector", "flightlog_recorder.service")
NAMES = re.compile(r"\bflightlog_[a-z_]+")


def rules() -> list[dict[str, Any]]:
    [found] = of_kind(component("monitoring"), "PrometheusRule")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def queries() -> Iterator[str]:
    """Every expression of alerts and dashboard."""
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((DEPLOY / "k8s/components/monitoring/dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


async def scraped(module: str, servers: Servers) -> str:
    """A service's counters, from a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        env=environment(servers.nats_url, servers.redis_url),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    while b"HTTP on port" not in (line := await process.stderr.readline()):
        assert line, "it did not start"
    port = int(line.rsplit(b" ", 1)[1])
    assert (await page(port, "/startupz"))[0] in (200, 503)
    status, text = await page(port, "/metrics")
    process.terminate()
    await process.communicate()
    assert status == 200
    return text


@pytest.mark.timeout(60)  # two services start, each a Python of its own
async def test_every_counter_that_is_asked_for_is_in_a_real_scrape(servers: Servers) -> None:
    known = set[str]()
    for module in MODULES:
        for family in text_string_to_metric_families(await scraped(module, servers)):
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
            known |= {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
    asked = {name for query in queries() for name in NAMES.findall(query)}
    assert asked
    assert asked <= known, asked - known


def test_every_label_in_an_alerts_text_is_kept_by_its_expression() -> None:
    for rule in rules():
        text = rule["annotations"]["summary"]
        for label in re.findall(r"\$labels\.(\w+)", text):
            kept = re.findall(r"by \(([^)]*)\)", rule["expr"])
            assert any(label in names.split(", ") for names in kept), rule["alert"]


def test_every_alert_is_explained_in_the_operations_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    headings = re.findall(r"^#+ (Flightlog\w+)$", page, re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        anchor = f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["runbook"] == anchor
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_dashboard_is_loaded_under_its_name() -> None:
    folder = DEPLOY / "k8s/components/monitoring"
    [made] = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
    [entry] = made["files"]
    assert (folder / entry.partition("=")[2]).is_file()
    assert made["options"]["labels"]["grafana_dashboard"] == "1"
