"""Purging a session: gone from the log for good, with a tombstone for whoever comes late."""

from flightlog_recorder.purge.purge import Purged, finish, purge, unfinished

__all__ = ["Purged", "finish", "purge", "unfinished"]
