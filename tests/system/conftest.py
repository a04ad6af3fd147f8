"""Harness processes on servers of this test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flightlog_recorder.embedded import Servers
from tests.system.processes import Workshop


@pytest.fixture
def workshop(tmp_path: Path, servers: Servers) -> Iterator[Workshop]:
    """A folder for an agent, and the environment in which it finds the servers."""
    made = Workshop(tmp_path, servers.environment())
    yield made
    made.clear()
