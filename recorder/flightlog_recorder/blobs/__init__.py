"""Chunks of blobs that nothing refers to: what a crash between a blob and its event left behind."""

from flightlog_recorder.blobs.collect import collect

__all__ = ["collect"]
