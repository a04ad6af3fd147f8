"""The demo: an agent is killed in the middle of a turn, and another process finishes its work."""

from flightlog_recorder.demo.entry import command

__all__ = ["command"]
