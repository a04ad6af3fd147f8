"""The demo ends by itself, in time, and what it claims is so."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import redis

from flightlog_recorder.embedded import Servers

# Five processes of Python start one after the other, and two sessions are replayed: 8 s when idle.
DEMO_SECONDS = 60


def run_demo(
    *args: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flightlog_recorder", "demo", *args],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the demo says to machines, on servers of its own."""
    done = run_demo("--json")
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(params=["killed", "redis_emptied"])
def run(request: pytest.FixtureRequest, told: dict[str, Any]) -> dict[str, Any]:
    """The run that was killed, and the one for which Redis was emptied too."""
    found: dict[str, Any] = told if request.param == "killed" else told["redis_emptied"]
    return found


pytestmark = pytest.mark.timeout(2 * DEMO_SECONDS)  # the fixture's run counts for the first test


def test_the_demo_ends_within_a_minute(told: dict[str, Any]) -> None:
    assert told["seconds"] < 60


def test_every_acked_event_is_stored(run: dict[str, Any]) -> None:
    assert run["lost"] == 0
    assert run["stored"] >= run["acked"] > run["killed_at_seq"]


def test_the_harness_is_killed_while_one_tool_of_three_runs(run: dict[str, Any]) -> None:
    assert run["killed_at_seq"] > 100
    assert len(run["in_flight"]) == 1


def test_no_recorded_step_is_executed_again(run: dict[str, Any]) -> None:
    assert run["repeated"] == []
    # 24 branches, one call of each tool; the shell command that was in flight ran once more
    assert run["tool_runs"] == {"read_file": 25, "send_mail": 1, "shell": 26, "write_file": 25}


def test_the_result_equals_that_of_an_uninterrupted_run(run: dict[str, Any]) -> None:
    assert run["results_equal"] is True


def test_the_log_is_one_chain_and_its_snapshot_equals_replay(run: dict[str, Any]) -> None:
    assert run["chain_ok"] is True
    assert run["snapshot_equals_replay"] is True


def test_the_first_resume_uses_a_snapshot_and_its_tail(told: dict[str, Any]) -> None:
    used = told["resumed_from"]
    assert used["snapshot_seq"] >= 100
    assert used["snapshot_seq"] + used["tail"] == told["killed_at_seq"]


def test_with_redis_emptied_the_resume_reads_the_log_and_the_catalog_refills(
    told: dict[str, Any],
) -> None:
    emptied = told["redis_emptied"]
    assert emptied["resumed_from"] == {"snapshot_seq": None, "tail": emptied["killed_at_seq"]}
    assert told["catalog_refilled"] is True


def test_on_given_servers_it_spares_what_others_keep_and_tells_plain_lines_in_a_pipe(
    servers: Servers,
) -> None:
    with redis.Redis.from_url(servers.redis_url) as client:
        client.set("of-others", "kept")
        done = run_demo(environment=servers.environment())
        assert client.get("of-others") == b"kept"
    assert done.returncode == 0, done.stderr[-2000:]
    assert "this Redis holds other data" in done.stdout
    assert "nothing was lost, nothing was done twice" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
