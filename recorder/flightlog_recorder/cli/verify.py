"""`flightlog verify`: prove that logs, snapshots and catalog are what they should be."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import typer

from flightlog import Log, NoSuchSession
from flightlog.cache.store import StoreUnavailable
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
from flightlog_recorder.cli.target import Target
from flightlog_recorder.verify import Checker, Verdict, ghosts, sessions, verdict

AT_ONCE = 8  # sessions: what memory holds is a page and a context for each
STYLES = {"ok": "green", "problem": "bold red", "unsealed": "yellow", "purged": "dim"}
TOLD = 10  # findings of one session; the rest is counted


def verify(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="A session's key.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All sessions of the tenant.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document a line, for machines.")
    ] = False,
) -> None:
    """Verify a session, or all that the tenant's streams hold. Exit code 1 for any problem.

    Each log is read from its first event: dense seq, chain of digests, strays, seal. With Redis the
    stored snapshot must be what replay gives, byte for byte, and the catalog's row must agree.
    """
    target.run(_verify(target.of(context), session, key, every=every, json=json))


async def _verify(
    where: Target, session: str | None, key: str | None, *, every: bool, json: bool
) -> Exit:
    if every and (session or key):
        raise Usage("give one session, or --all")
    if not (every or session or key):
        raise Usage("name one session: its id, or --key; or give --all")
    if not every:
        target.one_session(session, key)
    outcomes: Counter[str] = Counter()
    async with where.log() as log:
        if log.store is None:
            note("no Redis given: the logs alone are verified, not snapshots and catalog")
        checker = Checker(target.bus_of(log), log.store, log.tenant)
        found = _all(log, checker) if every else _one(log, checker, session, key)
        async for each in found:
            outcomes[each.outcome] += 1
            outcomes["events"] += each.events
            show_json_line(fields(each)) if json else _tell(each)
    return _conclude(outcomes, json=json)


async def _one(
    log: Log, checker: Checker, session: str | None, key: str | None
) -> AsyncIterator[Verdict]:
    found = await checker.check(await target.session_id(log, session, key=key))
    if found.outcome == "absent":
        raise NoSuchSession(found.session)
    yield found


async def _all(log: Log, checker: Checker) -> AsyncIterator[Verdict]:
    """Every session that a stream holds, a damaged one like any other; then rows without a log."""
    async for found in sessions(target.bus_of(log), log.tenant):
        for some in _chunks(found):
            for each in await asyncio.gather(*(checker.check(session) for session in some)):
                yield each
    if log.store is None:
        return
    try:
        async for gone in ghosts(target.bus_of(log), log.store, log.tenant):
            for session in gone:
                yield verdict.ghost(session)
    except StoreUnavailable as exc:
        note(str(exc))


def _chunks(found: Sequence[str]) -> list[Sequence[str]]:
    return [found[at : at + AT_ONCE] for at in range(0, len(found), AT_ONCE)]


def _tell(found: Verdict) -> None:
    style = STYLES.get(found.outcome, "")
    parts = [plural(found.events, "event")]
    if found.digest:
        parts.append(f"digest {found.digest[:12]}")
    parts += found.checked + [printable(each) for each in found.notes]
    say((f"{found.outcome:<8}  ", style), f"{found.session}  ", (", ".join(parts), "dim"))
    for finding in found.problems[:TOLD]:
        say("          ", (f"{finding.kind}: ", "red"), printable(finding.what))
    if (rest := len(found.problems) - TOLD) > 0:
        say(f"          and {number(rest)} more")


def _conclude(outcomes: Counter[str], *, json: bool) -> Exit:
    events, problems = outcomes.pop("events", 0), outcomes["problem"]
    total = sum(outcomes.values())
    if json:
        summary = {name: count for name, count in sorted(outcomes.items()) if count}
        show_json_line({"summary": {"sessions": total, "events": events, **summary}})
    else:
        what = plural(problems, "problem session") if problems else "no problem"
        text = f"{plural(total, 'session')}, {plural(events, 'event')}: {what}"
        say((text, "bold red" if problems else "bold green"))
    return Exit.PROBLEM if problems else Exit.FINE
