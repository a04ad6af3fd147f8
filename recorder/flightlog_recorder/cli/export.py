"""`flightlog export`: a session as JSON lines."""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Annotated

import typer

from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, Usage, note, plural
from flightlog_recorder.cli.target import Target
from flightlog_recorder.inspect.copy import copy


def export(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="A session's key.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write this file, whole or not at all; else to stdout.")
    ] = None,
    until: Annotated[int | None, typer.Option(min=1, help="Stop after this seq.")] = None,
) -> None:
    """Write a session's events, one a line, byte for byte as they are stored, then its blobs.

    Nothing is written unless the chain holds to the end. A file is readable by its owner only.
    """
    if out is not None and out.is_dir():
        target.stop(Usage("--out names a directory; name a file in it"))
    if out is not None and not out.parent.is_dir():
        target.stop(Usage("--out names a file in a directory that is not there"))
    target.run(_export(target.of(context), session, key, out, until))


async def _export(
    where: Target, session: str | None, key: str | None, out: Path | None, until: int | None
) -> Exit:
    target.one_session(session, key)
    async with where.log() as log:
        found = await target.session_id(log, session, key=key)
        with _whole(out) if out else _to_stdout() as file:
            copied = await copy(log.bus, log.tenant, found, file, until=until)
    note(f"exported {plural(copied.events, 'event')} of session {found}")
    for why in copied.lacks:
        note(why)
    return Exit.PROBLEM if copied.lacks else Exit.FINE


@contextlib.contextmanager
def _whole(path: Path) -> Generator[IO[bytes]]:
    """A file that gets its name once all is in it and on disk."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextlib.contextmanager
def _to_stdout() -> Generator[IO[bytes]]:
    with tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()
