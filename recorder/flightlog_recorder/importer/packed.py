"""Transcripts that were archived with zstd: read as the bytes that were packed."""

from pathlib import Path
from typing import BinaryIO, cast

from flightlog.blobs.zstd import library as zstd

SUFFIX = ".zst"
MOST = 1 << 30  # bytes that a file may unpack to: a few KB can say that they are petabytes
FAULTS = (EOFError, zstd.ZstdError)  # what reading a damaged archive raises


def unpacked(path: Path) -> Path:
    """The file itself, unless it is an archive that the plain one stands beside."""
    plain = path.with_suffix("")
    return plain if path.suffix == SUFFIX and plain.is_file() else path


def opened(path: Path) -> BinaryIO:
    """Open a transcript for reading; raises `OSError`."""
    return cast("BinaryIO", zstd.open(path, "rb")) if path.suffix == SUFFIX else path.open("rb")
