"""`flightlog ls`: the sessions of a tenant, from the catalog."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from flightlog.cache import catalog, floor
from flightlog.cache.catalog import Cursor, Page, Row
from flightlog.log import Log
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import (
    Cell,
    Usage,
    dollars,
    is_terminal,
    note,
    number,
    printable,
    show_json,
    show_table,
)
from flightlog_recorder.cli.target import Json, Labels, Target

COLUMNS = ("session", "status", "events", "tokens", "cost", "active", "key", "labels")
STYLES = {
    "running": "green",
    "suspended": "yellow",
    "completed": "dim",
    "failed": "red",
    "cancelled": "magenta",
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list, as the options say."""

    status: str | None
    waiting: str | None
    label: list[str] | None
    key: str | None
    parent: str | None
    fork_of: str | None
    damaged: bool | None
    stalled: bool | None
    after: str | None
    limit: int


def ls(
    context: typer.Context,
    *,
    status: Annotated[
        str | None, typer.Option(help=f"One of {', '.join(catalog.STATUSES)}.")
    ] = None,
    waiting: Annotated[
        str | None, typer.Option(help=f"For what: {', '.join(catalog.WAITING)}.")
    ] = None,
    label: Labels = None,
    key: Annotated[
        str | None, typer.Option(help="The sessions of this key, and of all under it: KEY/...")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(help="The sessions that this one's calls have opened.")
    ] = None,
    fork_of: Annotated[str | None, typer.Option(help="The forks of this session.")] = None,
    damaged: Annotated[
        bool | None, typer.Option(help="Those whose log is broken, or is not.", show_default=False)
    ] = None,
    stalled: Annotated[
        bool | None,
        typer.Option(help="Those that run and are not heard of, or not those.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Sessions at most.")] = 50,
    after: Annotated[str | None, typer.Option(help="Go on where a listing ended.")] = None,
    json: Json = False,
) -> None:
    """List sessions, latest activity first, from the catalog: about 2 s behind the log."""
    wanted = Wanted(
        status=status,
        waiting=waiting,
        label=label,
        key=key,
        parent=parent,
        fork_of=fork_of,
        damaged=damaged,
        stalled=stalled,
        after=after,
        limit=limit,
    )
    target.run(_ls(target.of(context), wanted, json=json))


async def _ls(where: Target, wanted: Wanted, *, json: bool) -> None:
    _check("--status", wanted.status, catalog.STATUSES)
    _check("--waiting", wanted.waiting, catalog.WAITING)
    labels, after = target.labels(wanted.label), _cursor(wanted.after)
    if where.redis is None:
        raise Usage("ls reads the catalog, which is in Redis: give --redis or FLIGHTLOG_REDIS_URL")
    async with where.log() as log:
        page = await log.sessions(
            status=wanted.status,
            waiting=wanted.waiting,
            labels=labels,
            job=wanted.key,
            parent=await _origin(log, wanted.parent),
            fork_of=await _origin(log, wanted.fork_of),
            damaged=wanted.damaged,
            stalled=wanted.stalled,
            after=after,
            limit=wanted.limit,
        )
        rebuilding = await _rebuilding(log)
    if json:
        rows = [msgspec.structs.asdict(row) for row in page.rows]
        about = {"after": _place(page.after), "partial": page.partial, "rebuilding": rebuilding}
        show_json({"sessions": rows, **about})
        return
    _tell(page, wanted, rebuilding, tenant=where.tenant)


async def _origin(log: Log, text: str | None) -> str | None:
    return None if text is None else await target.session_id(log, text)


def _check(option: str, value: str | None, words: tuple[str, ...]) -> None:
    if value is not None and value not in words:
        raise Usage(f"{option} is one of {', '.join(words)}")


def _cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    activity, _, session = text.partition(".")
    if not activity.isdigit() or not session:
        raise Usage("--after takes what an earlier listing named")
    return Cursor(int(activity), session)


def _place(cursor: Cursor | None) -> str | None:
    return None if cursor is None else f"{cursor.activity}.{cursor.session}"


async def _rebuilding(log: Log) -> list[str]:
    """Streams whose sessions may be missing here."""
    if log.store is None:
        return []
    return await floor.rebuilding(log.store, log.bus.layout.streams)


def _tell(page: Page, wanted: Wanted, rebuilding: list[str], *, tenant: str) -> None:
    now = datetime.now(UTC)
    if page.rows:
        show_table(
            COLUMNS,
            [_row(row, now, of_job=wanted.key is not None) for row in page.rows],
            right="events tokens cost",
            shrink="key labels",
        )
    else:
        none = f"tenant {tenant} has no sessions yet"
        note("no such session in the catalog" if _is_narrow(wanted) else none)
    if page.after is not None:
        note(f"there are more: the same command with --after {_place(page.after)}")
    if rebuilding:
        note(f"the catalog is being rebuilt ({', '.join(rebuilding)}): sessions may be missing")
    if page.partial:
        note("more keys begin like that than are looked at: give more of it")


def _is_narrow(wanted: Wanted) -> bool:
    return any(msgspec.structs.astuple(msgspec.structs.replace(wanted, limit=0)))


def _row(row: Row, now: datetime, *, of_job: bool) -> list[Cell]:
    used = sum(row.usage.values())
    return [
        row.session,
        _standing(row) if of_job else _status(row),
        number(row.seq),
        number(used) if used else "",
        dollars(row.cost),
        _when(row.last_ts, now),
        printable(row.key or ""),
        printable(" ".join(f"{name}={value}" for name, value in sorted(row.labels.items()))),
    ]


def _status(row: Row) -> Text:
    if row.trouble is not None:
        return Text("damaged", "bold red")
    if row.stalled is not None:
        return Text("stalled", "bold red")
    words = f"{row.status}, asks" if _asks(row) else row.status
    return Text(words, "bold yellow" if _asks(row) else STYLES.get(row.status, ""))


def _asks(row: Row) -> bool:
    return row.waiting == "decide" and row.status in ("running", "suspended")


def _standing(row: Row) -> Text:
    """How one time of a job stands, in plain words."""
    if row.trouble is not None or row.stalled is not None:
        return _status(row)
    if _asks(row):
        return Text("waiting for a person", "bold yellow")
    words = "done" if row.status == "completed" else row.status
    return Text(words, STYLES.get(row.status, ""))


def _when(stamp: str | None, now: datetime) -> str:
    """For people: how long ago; for a pipe: the time itself."""
    if stamp is None or not is_terminal():
        return stamp or ""
    try:
        passed = (now - datetime.fromisoformat(stamp)).total_seconds()
    except ValueError:
        return printable(stamp)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if passed >= size:
            return f"{int(passed // size)} {unit} ago"
    return "now"
