"""Transcripts that were archived with zstd: read as the bytes that were packed."""

import importlib
from pathlib import Path
from typing import Any, BinaryIO, cast

from flightlog_recorder.importer.errors import BadTranscript

SUFFIX = ".zst"
MOST = 1 << 30  # bytes that a file may unpack to: a few KB can say that they are petabytes


def unpacked(path: Path) -> Path:
    """The file itself, unless it is an archive that the plain one stands beside."""
    plain = path.with_suffix("")
    return plain if path.suffix == SUFFIX and plain.is_file() else path


def opened(path: Path) -> BinaryIO:
    """Open a transcript for reading; raises `OSError`, and `BadTranscript` if zstd is not here."""
    if path.suffix != SUFFIX:
        return path.open("rb")
    if _zstd is None:
        why = "it is packed with zstd, which needs Python 3.14 or backports.zstd; try: zstd -d"
        raise BadTranscript(path, why)
    return cast("BinaryIO", _zstd.open(path, "rb"))


def faults() -> tuple[type[Exception], ...]:
    """What reading a damaged archive raises."""
    return (EOFError,) if _zstd is None else (EOFError, _zstd.ZstdError)


def _found() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_zstd = _found()
