"""`flightlog doctor`: what is right and wrong with a live deployment, one line each."""

from collections import Counter
from typing import Annotated

import typer

from flightlog import FlightlogError
from flightlog.bus import access
from flightlog.wire import subject as names
from flightlog_recorder.access.role import ROLES, Role
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Exit, Usage, plural, printable, say, show_json
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.doctor.doctor import CHECKS, examine
from flightlog_recorder.doctor.duty import Post
from flightlog_recorder.doctor.finding import Finding, is_fine
from flightlog_recorder.doctor.gather import Place

STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}
_WIDTH = max(map(len, CHECKS))
_ACCOUNT_ROLES = [role for role in ROLES if role != "doctor"]


def command(
    context: typer.Context,
    *,
    system_nats: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The same servers as a user of the system account, such as `doctor`. "
            "FLIGHTLOG_SYSTEM_NATS_URL, _USER, _PASSWORD_FILE and so on do the same.",
        ),
    ] = None,
    system_context: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="That user as a context of the nats command."),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE",
            help=f"What the credentials are meant to be: {', '.join(_ACCOUNT_ROLES)}.",
            show_default="as their user's name says",
        ),
    ] = None,
    subscriber: Annotated[
        str, typer.Option(metavar="NAME", help="With --role subscriber: the name it goes by.")
    ] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 for a warning, too: a gate.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a deployment: one line each, ok, warning or wrong, with the command that mends it.

    It only looks. What these credentials may not see is a warning, `unproven`; the best are an
    operator's, with a user of the system account beside them. Exit code 1 if anything is wrong.
    """
    where = target.of(context)
    post = _post(role, where, subscriber)
    target.run(_examine(_place(where, system_nats, system_context), post, strict=strict, json=json))


def _post(role: str | None, where: Target, subscriber: str) -> Post | None:
    if role is None:
        return None
    known: Role | None = next((each for each in ROLES if each == role), None)
    if known is None or known == "doctor":
        target.stop(Usage(f"--role is one of {', '.join(_ACCOUNT_ROLES)}"))
    if (known == "subscriber") != bool(subscriber):
        target.stop(Usage("--role subscriber and --subscriber NAME are given together"))
    try:
        name = names.token("subscriber", subscriber) if subscriber else ""
    except FlightlogError as exc:
        target.stop(exc)
    return Post(known, where.tenant, name)


def _place(where: Target, url: str | None, context: str | None) -> Place:
    try:
        system = access.system(where.nats, url, context=context)
    except FlightlogError as exc:
        target.stop(exc)
    return Place(where.nats, system, where.redis, where.prefix)


async def _examine(place: Place, post: Post | None, *, strict: bool, json: bool) -> Exit:
    found = await examine(place, post=post)
    if json:
        show_json({"findings": found})
    else:
        _tell(found)
    return Exit.FINE if is_fine(found, strict=strict) else Exit.PROBLEM


def _tell(found: list[Finding]) -> None:
    for each in found:
        mend = (f"; mend: {printable(each.mend)}", "dim") if each.mend else ""
        say(
            (f"{each.grade:<7}  ", STYLES[each.grade]),
            f"{each.check:<{_WIDTH}}  ",
            printable(each.what),
            mend,
        )
    count = Counter(each.grade for each in found)
    parts = [f"{count['ok']} ok", plural(count["warning"], "warning"), f"{count['wrong']} wrong"]
    say((", ".join(parts), "bold"))
