"""Alerts and dashboard: built on counters that the services really have, and explained."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
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


# Series over four hours at a minute each, when an alert is asked for, and how often it rings then.
STALLED = "flightlog_recorder_stalled_sessions"
SEEN_BY_TWO = {f'{STALLED}{{tenant="acme",pod="{pod}"}}': "0+0x20 3+0x240" for pod in "ab"}
CASES = [
    ("FlightlogSessionsStalled", SEEN_BY_TWO, "45m", 0),
    ("FlightlogSessionsStalled", SEEN_BY_TWO, "55m", 1),
    ("FlightlogSessionsStalled", {f'{STALLED}{{tenant="acme"}}': "1+0x20 0+0x240"}, "2h", 0),
    ("FlightlogNotVerified", {}, "31m", 1),
    ("FlightlogNotVerified", {"flightlog_recorder_rounds_total": "0+1x240"}, "2h", 0),
    (
        "FlightlogLogDamaged",
        {'flightlog_recorder_problem_sessions{kind="log"}': "1+0x240"},
        "1m",
        1,
    ),
    (
        "FlightlogLogDamaged",
        {'flightlog_recorder_problem_sessions{kind="log"}': "0+0x240"},
        "1h",
        0,
    ),
    (
        "FlightlogCatalogLags",
        {'flightlog_projector_lag{stream="FLIGHTLOG_0"}': "60000+0x240"},
        "1h",
        1,
    ),
    (
        "FlightlogCatalogLags",
        {'flightlog_projector_lag{stream="FLIGHTLOG_0"}': "9000+0x240"},
        "1h",
        0,
    ),
]


@pytest.mark.parametrize(("alert", "series", "at", "rings"), CASES)
def test_an_alert_rings_when_it_is_meant_to_and_not_else(
    tmp_path: Path, alert: str, series: dict[str, str], at: str, rings: int
) -> None:
    """By Prometheus' own evaluation."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: the alerts were not evaluated")
    [rule] = [rule for rule in rules() if rule["alert"] == alert]
    labels = dict(re.findall(r'(tenant|stream|kind)="(\w+)"', " ".join(series)))
    groups = [{"name": "flightlog", "rules": [{**rule, "annotations": {}}]}]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    told = [{"exp_labels": {**rule["labels"], **labels}}] * rings
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": run} for name, run in series.items()],
        "alert_rule_test": [{"alertname": alert, "eval_time": at, "exp_alerts": told}],
    }
    test = tmp_path / "test.yml"
    test.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [case]}))
    done = subprocess.run(
        ["promtool", "test", "rules", test], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
