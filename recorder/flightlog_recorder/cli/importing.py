"""`flightlog import`: foreign transcripts into sessions."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from flightlog import FlightlogError, Log
from flightlog.errors import BusUnavailable, LayoutRefused, NotPermitted
from flightlog.writing.writer import HEADER_ROOM
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import (
    Exit,
    Usage,
    fields,
    note,
    number,
    plural,
    printable,
    say,
    show_json_line,
)
from flightlog_recorder.cli.target import Labels, Target
from flightlog_recorder.importer import Imported, Report, read_claude_code, read_codex
from flightlog_recorder.importer.intake import Taken, take
from flightlog_recorder.importer.oversize import LIMIT

ENVELOPE = 1024  # bytes of an event beside its payload, at most
TOLD = 10  # flagged lines of one file; the rest is counted

app = typer.Typer(no_args_is_help=True, help="Turn foreign transcripts into sessions.")


Read = Callable[..., Imported]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Transcripts (.jsonl).")]
Key = Annotated[str | None, typer.Option(help="A key for the session; for one file.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document a file, for machines.")]


@app.command("claude-code")
def claude_code(
    context: typer.Context,
    *,
    files: Files,
    key: Key = None,
    label: Labels = None,
    json: Json = False,
) -> None:
    """Import Claude Code's transcripts, each as a new session. The same file again adds nothing.

    Nobody is notified of an imported event. A file that has grown since becomes a new session that
    names the earlier one. Bad lines are kept raw and flagged. Exit code 1 if a file was refused.
    """
    where = target.of(context)
    target.run(_import(where, read_claude_code, files, key, label, json=json))


@app.command("codex")
def codex(
    context: typer.Context,
    *,
    files: Files,
    key: Key = None,
    label: Labels = None,
    json: Json = False,
) -> None:
    """Import Codex's rollouts, each as a new session. The same file again adds nothing.

    Nobody is notified of an imported event. A file that has grown since becomes a new session that
    names the earlier one. Compactions and rollbacks change the context where they stand; the log
    keeps all. Bad lines are kept raw and flagged. Exit code 1 if a file was refused.
    """
    target.run(_import(target.of(context), read_codex, files, key, label, json=json))


async def _import(
    where: Target,
    read: Read,
    files: list[Path],
    key: str | None,
    label: list[str] | None,
    *,
    json: bool,
) -> Exit:
    if key is not None and len(files) > 1:
        raise Usage("--key stands for one session, so it goes with one file")
    labels, refused = target.labels(label), 0
    async with where.log(provision=None) as log:
        for path in files:
            try:
                await _take(log, read, path, key, labels, json=json)
            except (BusUnavailable, LayoutRefused, NotPermitted):
                raise
            except FlightlogError as exc:
                refused += 1
                note(str(exc))
                if json:
                    show_json_line({"file": str(path), "error": str(exc)})
    return Exit.PROBLEM if refused else Exit.FINE


async def _take(
    log: Log, read: Read, path: Path, key: str | None, labels: dict[str, str], *, json: bool
) -> None:
    bus = target.bus_of(log)
    limit = min(LIMIT, bus.max_payload - HEADER_ROOM - ENVELOPE)
    imported = await asyncio.to_thread(read, path, limit=limit)
    taken = await take(bus, log.tenant, imported, key=key, labels=labels)
    if json:
        show_json_line(_document(path, imported, taken))
    else:
        _tell(path, imported, taken)


def _tell(path: Path, imported: Imported, taken: Taken) -> None:
    report = imported.report
    made = taken.made == "new"
    word = ("imported  ", "bold green") if made else ("was there ", "dim")
    say(word, printable(str(path)))
    grown = f", grown from {taken.earlier}" if taken.earlier else ""
    say(f"          session {taken.session}, {plural(taken.events, 'event')}{grown}")
    say(f"          {_account(report)}")
    say(f"          {_tokens(report)}")
    if forked := imported.labels.get("forked_from"):
        say(f"          a fork of {printable(forked)}: tokens that the file repeats count in both")
    for line in _remarks(report):
        say(f"          {line}")


def _account(report: Report) -> str:
    view_only = sum(report.view_only.values())
    parts = [plural(report.lines, "line"), f"{number(report.recorded)} became events"]
    if view_only:
        names = ", ".join(
            f"{printable(n)} {number(c)}" for n, c in sorted(report.view_only.items())
        )
        parts.append(f"{number(view_only)} only for viewers ({names})")
    if report.kept:
        parts.append(f"{number(report.kept)} unreadable, kept raw")
    return ", ".join(parts)


def _tokens(report: Report) -> str:
    used = report.usage
    text = f"{number(used.input_total)} tokens in, {number(used.output_tokens)} out"
    whole = f"{text} over {plural(used.messages, 'answer')}"
    return (
        f"{whole} ({number(used.lower_bounds)} cut off: at least)" if used.lower_bounds else whole
    )


def _remarks(report: Report) -> list[str]:
    lines = []
    if report.orphan_calls or report.orphan_results:
        calls = plural(report.orphan_calls, "call")
        results = plural(report.orphan_results, "result")
        lines.append(f"orphans: {calls} without a result, {results} without a call")
    lines += [f"line {flag.line}: {printable(flag.why)}" for flag in report.flagged[:TOLD]]
    if (rest := len(report.flagged) - TOLD) > 0:
        lines.append(f"and {plural(rest, 'more flagged line', 'more flagged lines')}")
    return lines


def _document(path: Path, imported: Imported, taken: Taken) -> dict[str, Any]:
    report = {**fields(imported.report), "balanced": imported.report.balanced}
    source = {"format": imported.format, "id": imported.source_id, "hash": imported.hash}
    return {"file": str(path), **fields(taken), "source": source, "report": report}
