"""Real servers for the tests of harnesses: pytest fixtures over the embedded NATS and Valkey.

`pytest_plugins = ["flightlog.testing"]` in a conftest.py; needs `flightlog[embedded,recorder]`.
"""

import uuid
from collections.abc import Generator

import pytest

from flightlog_recorder.embedded import Servers, embedded


@pytest.fixture(scope="session")
def flightlog_pair() -> Generator[Servers]:
    """NATS and Valkey for the whole run, on free ports; they die with it, however it dies."""
    with embedded() as servers:
        yield servers


@pytest.fixture
def flightlog_servers(flightlog_pair: Servers, monkeypatch: pytest.MonkeyPatch) -> Servers:
    """The servers, and a tenant of this test alone: `flightlog.connect()` finds both."""
    named = flightlog_pair.environment() | {"FLIGHTLOG_TENANT": f"test_{uuid.uuid4().hex}"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    return flightlog_pair
