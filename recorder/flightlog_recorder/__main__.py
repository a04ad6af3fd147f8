"""The `flightlog` command: loads its commands only when the `cli` extra is installed."""

import importlib.util
import sys

CLI_PACKAGES = ("typer", "rich")
USAGE = 2


def main() -> None:
    """Run the command line; without its extra, say how to install it and exit 2."""
    if any(importlib.util.find_spec(name) is None for name in CLI_PACKAGES):
        sys.stderr.write("flightlog: the command line needs: pip install 'flightlog[cli]'\n")
        raise SystemExit(USAGE)
    from flightlog_recorder.cli import app  # noqa: PLC0415  typer is an extra

    app()


if __name__ == "__main__":
    main()
