"""`flightlog.testing`, as the project of a harness' author uses it: a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from flightlog import blocking


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_a_tenant_of_its_own(flightlog_servers, turn):
    with blocking.connect() as log, log.session(key="job") as session:
        assert session.state.seq == 1
"""


@pytest.mark.timeout(60)  # a pytest of its own, and servers that start
def test_a_harness_is_tested_on_real_servers_by_one_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["flightlog.testing"]\n')
    (tmp_path / "test_harness.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
