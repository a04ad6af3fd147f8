"""The `flightlog` command: one module a command, what they share in `target` and `output`."""

from flightlog_recorder.cli.app import app

__all__ = ["app"]
