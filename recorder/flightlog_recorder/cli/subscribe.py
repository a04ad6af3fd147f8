"""`flightlog subscribe`: hand live events to a program, a URL or a pipe; look after subscribers."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

import typer

from flightlog import FlightlogError, Subscription
from flightlog.bus.notices import Start
from flightlog.subscribing import standing
from flightlog.subscribing.subscription import ATTEMPTS, Handle, Interest
from flightlog.wire import payload as payloads
from flightlog.wire.layout import STALLED
from flightlog_recorder.cli import letters, target
from flightlog_recorder.cli.output import (
    Exit,
    Usage,
    note,
    number,
    printable,
    say,
    show_json,
    show_table,
)
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.receivers.program import Program

SECRET = "FLIGHTLOG_WEBHOOK_SECRET"  # noqa: S105  the name of a variable
HEADER = "FLIGHTLOG_WEBHOOK_HEADER"
_STARTS: dict[str, Start] = {"new": "new", "all": "all"}


def command(
    context: typer.Context,
    *,
    delivery: Annotated[str | None, typer.Argument(help="A dead letter, with --dead.")] = None,
    name: Annotated[
        str | None, typer.Option(help="The subscriber; its processes share it.")
    ] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Only events of this type; may be repeated.")
    ] = None,
    start: Annotated[
        str, typer.Option(help="Where a new name begins: new, all, or a time with its zone.")
    ] = "new",
    exec: Annotated[
        str | None, typer.Option("--exec", help="Run this for each, the event on its stdin.")
    ] = None,
    webhook: Annotated[str | None, typer.Option(help="Post each to this URL.")] = None,
    parallel: Annotated[int, typer.Option(min=1, max=1_000, help="How many at once.")] = 1,
    attempts: Annotated[
        int, typer.Option(min=1, help="Deliveries until one that fails is a dead letter.")
    ] = ATTEMPTS,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for one of them.")] = 60.0,
    dead: Annotated[bool, typer.Option("--dead", help="List dead letters, or show one.")] = False,
    resend: Annotated[
        bool, typer.Option("--resend", help="With --dead: deliver one, or all of --name, again.")
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="With --dead: forget one, or all of --name.")
    ] = False,
    lag: Annotated[bool, typer.Option("--lag", help="List subscribers and their lag.")] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Forget --name: no purge waits for it any more.")
    ] = False,
    json: Json = False,
) -> None:
    """Hand each live event to a program or a URL, at least once; else print it, one a line.

    A replay, a fork or an import is never delivered. Processes with one --name share the work; what
    fails comes again after a pause that doubles. A program learns FLIGHTLOG_DELIVERY_ID, _SESSION,
    _SEQ, _TYPE and _ATTEMPT; a URL is posted to as standardwebhooks.com says, signed with
    FLIGHTLOG_WEBHOOK_SECRET, with a header of yours from FLIGHTLOG_WEBHOOK_HEADER ("Name: value").
    """
    at = target.of(context)
    if lag:
        target.run(_lag(at, json=json))
    if dead:
        act = letters.act_of(resend=resend, drop=drop)
        target.run(letters.look_after(at, name, delivery, act, json=json))
    if name is None:
        target.stop(Usage("name the subscriber with --name"))
    if remove:
        target.run(_remove(at, name, json=json))
    interest = Interest(
        name=name, types=type, start=_start(start), attempts=attempts, ahead=parallel
    )
    try:
        interest.check()
    except FlightlogError as exc:
        target.stop(exc)
    for odd in sorted(set(type or ()) - payloads.TYPES.keys() - {STALLED}):
        note(f"{printable(odd)} is no type of Flightlog's own: only a harness can append one")
    if exec is not None and webhook is not None:
        target.stop(Usage("give --exec or --webhook, not both"))
    if exec is not None:
        target.run(_execute(at, interest, exec, timeout=timeout))
    if webhook is not None:
        target.run(_post(at, interest, webhook, timeout=timeout))
    target.run(_print(at, interest))


def _start(text: str) -> Start:
    if text in _STARTS:
        return _STARTS[text]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min  # noqa: DTZ901  it has no zone either
    if found.tzinfo is None:
        target.stop(Usage("--start is new, all, or a time such as 2026-05-06T14:00:00Z"))
    return found


async def _execute(at: Target, interest: Interest, line: str, *, timeout: float) -> None:
    words = _words(line)
    if not words or shutil.which(words[0]) is None:
        raise Usage("--exec names no program that can be run")
    await _run(at, interest, Program(words, timeout=timeout).take)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise Usage("--exec has a quote that does not end") from None


async def _post(at: Target, interest: Interest, url: str, *, timeout: float) -> None:
    try:
        import httpx  # noqa: PLC0415  an extra of its own

        from flightlog_recorder.receivers import webhook  # noqa: PLC0415  needs it
    except ModuleNotFoundError:
        raise Usage("--webhook needs: pip install 'flightlog[webhook]'") from None
    webhook.check(url)
    secret = os.environ.get(SECRET)
    key = webhook.key_of(secret) if secret else None
    async with httpx.AsyncClient(timeout=timeout) as client:
        poster = webhook.Webhook(client, url, headers=_header(), key=key, timeout=timeout)
        await _run(at, interest, poster.take)


def _header() -> dict[str, str]:
    """What the environment adds, such as an Authorization; a command line is for all to read."""
    given = os.environ.get(HEADER)
    if not given:
        return {}
    title, colon, value = given.partition(":")
    if not colon or not title.strip():
        raise Usage(f'{HEADER} is "Name: value"')
    return {title.strip(): value.strip()}


async def _run(at: Target, interest: Interest, handle: Handle) -> None:
    async with _listening(at, interest) as subscription:
        await subscription.run(handle, parallel=interest.ahead)


async def _print(at: Target, interest: Interest) -> None:
    async with _listening(at, interest) as subscription:
        async for delivery in subscription:
            sys.stdout.buffer.write(delivery.event.body + b"\n")
            sys.stdout.buffer.flush()
            await delivery.ack()


@asynccontextmanager
async def _listening(at: Target, interest: Interest) -> AsyncGenerator[Subscription]:
    """Open until a signal: what runs then may end, the rest goes to others."""
    async with at.log() as log, Subscription(log.bus, log.tenant, interest) as subscription:
        loop, stopping = asyncio.get_running_loop(), set[asyncio.Task[None]]()

        def stop() -> None:
            stopping.add(asyncio.create_task(subscription.stop()))

        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop)
        note(f"subscriber {interest.name} of tenant {log.tenant} listens; Ctrl-C stops it")
        yield subscription
        await asyncio.gather(*stopping)


async def _lag(at: Target, *, json: bool) -> None:
    async with at.log() as log:
        rows = await standing.standings(target.bus_of(log), log.tenant)
    if json:
        show_json({"subscribers": [{**_fields(each), "lag": each.lag} for each in rows]})
    elif rows:
        cells = [[e.name, number(e.waiting), number(e.in_hand), number(e.dead)] for e in rows]
        show_table(("subscriber", "waiting", "in hand", "dead"), cells, right="waiting dead")
    else:
        note(f"tenant {at.tenant} has no subscribers")


def _fields(row: standing.Standing) -> dict[str, object]:
    return {
        "subscriber": row.name,
        "waiting": row.waiting,
        "in_hand": row.in_hand,
        "dead": row.dead,
    }


async def _remove(at: Target, name: str, *, json: bool) -> Exit:
    async with at.log() as log:
        gone = await standing.remove(target.bus_of(log), log.tenant, name)
    if json:
        show_json({"subscriber": name, "removed": bool(gone)})
    else:
        say(f"{name}: " + ("removed" if gone else "there is no such subscriber"))
    return Exit.FINE if gone else Exit.PROBLEM
