"""Files that only their owner may read, from their first byte on."""

import os
from pathlib import Path
from typing import IO


def directory(path: Path) -> None:
    """Make a directory, and what is missing above it."""
    for each in (*reversed(path.parents), path):
        each.mkdir(mode=0o700, exist_ok=True)


def append(path: Path) -> IO[bytes]:
    """Open a file to append to it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def write(path: Path, content: bytes) -> None:
    """Replace a file as a whole: a reader sees the old content or the new."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
