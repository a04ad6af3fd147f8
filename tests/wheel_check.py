"""What images get: the bare wheel in an empty venv, used on real servers; then the services."""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from flightlog_recorder.embedded import embedded

SERVICES = {"projector": "flightlog_projector", "recorder": "flightlog_recorder.service"}  # extras
PIP = ("-m", "pip", "--quiet", "--quiet", "--disable-pip-version-check")


def main() -> None:
    """Build the wheel of the current directory, install it alone and use it."""
    with tempfile.TemporaryDirectory(prefix="flightlog-wheel-") as work:
        wheel = build(Path(work))
        python = install(wheel, Path(work) / "venv")
        with embedded() as servers:
            run(python, "-I", "-W", "error", "tests/wheel_use.py", **servers.environment())
        for extra, module in SERVICES.items():
            run(python, *PIP, "install", f"{wheel}[{extra}]")
            run(python, "-I", "-c", f"import {module}.__main__")
    print(f"wheel-check: {wheel.name} works alone")


def build(work: Path) -> Path:
    """Build the wheel; its path."""
    run(Path(sys.executable), *PIP, "wheel", "--no-deps", "--wheel-dir", str(work), ".")
    (wheel,) = work.glob("flightlog-*.whl")
    return wheel


def install(wheel: Path, home: Path) -> Path:
    """Install the wheel with its base dependencies into a new venv; that venv's Python."""
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, *PIP, "install", str(wheel))
    return python


def run(python: Path, *arguments: str, **environment: str) -> None:
    """Run a Python that must succeed; its output is ours."""
    command = [str(python), *arguments]
    done = subprocess.run(command, env=os.environ | environment, check=False)
    if done.returncode:
        raise SystemExit(f"wheel-check: {Path(arguments[-1]).name} failed")


if __name__ == "__main__":
    main()
