"""Proving that logs, snapshots and catalog are what they should be."""

from flightlog_recorder.verify.check import Checker
from flightlog_recorder.verify.tenant import ghosts, held, sessions
from flightlog_recorder.verify.verdict import Finding, Verdict

__all__ = ["Checker", "Finding", "Verdict", "ghosts", "held", "sessions"]
