"""The benchmark runs from end to end, on servers of its own; how fast is not for a test to say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120  # a smoke run takes 15 s on an idle machine


def run_bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flightlog_recorder", "bench", *args],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.timeout(SECONDS)
def test_its_json_names_every_target_of_appending_and_resuming(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    families = ["--only", "append", "--only", "resume"]
    done = run_bench("--quick", "--rounds", "2", *families, "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found == json.loads(out.read_text())
    assert [row["target"] for row in found["rows"]] == [0.85, 0.8, 0.7, 1.5, 3.0]
    assert all(row["measured"] > 0 and row["floor"] > 0 for row in found["rows"])


def test_an_unknown_family_is_wrong_usage() -> None:
    done = run_bench("--only", "nothing")
    assert done.returncode == 2
    assert "no such family" in done.stderr
