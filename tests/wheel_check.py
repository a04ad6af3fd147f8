"""Uses the SDK of a bare wheel: no extra may be installed, and none may be needed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

EXTRAS = (
    "pydantic",
    "pydantic_settings",
    "prometheus_client",
    "rich",
    "starlette",
    "typer",
    "uvicorn",
)


def check_that_extras_are_absent() -> None:
    present = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not present, f"the bare wheel pulled in {present}"


def check_that_the_sdk_imports_alone() -> None:
    import flightlog  # noqa: PLC0415  importing it is what is checked

    assert Path(flightlog.__file__ or "").is_relative_to(sys.prefix)
    loaded = [name for name in sys.modules if name.startswith(("flightlog_", *EXTRAS))]
    assert not loaded, f"import flightlog loaded {loaded}"


def check_that_the_command_names_its_extra() -> None:
    command = Path(sys.prefix) / "bin" / "flightlog"
    done = subprocess.run([command, "ls"], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert "pip install 'flightlog[cli]'" in done.stderr, done
    assert "Traceback" not in done.stderr, done


if __name__ == "__main__":
    check_that_extras_are_absent()
    check_that_the_sdk_imports_alone()
    check_that_the_command_names_its_extra()
    print("wheel-check: the bare wheel works alone")
