"""Where a command works: the servers, the tenant, and how its errors end."""

import asyncio
import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

import typer

from flightlog import FlightlogError, InvalidName, Log, connect
from flightlog.bus import access
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import NatsBus
from flightlog.defect import place
from flightlog.wire import subject as names
from flightlog.wire.carry import Redact
from flightlog_recorder.cli.output import Exit, Usage, exit_code, mute, note

DEBUG = "FLIGHTLOG_DEBUG"

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="May be repeated.")
]


class NoSuchKey(FlightlogError):
    """No session has the key that was given."""

    def __init__(self) -> None:
        super().__init__("no session has this key; flightlog ls shows those there are")


@dataclass(frozen=True)
class Target:
    """What the options before the command say."""

    nats: NatsAccess
    redis: str | None = field(repr=False)
    tenant: str
    prefix: str

    @asynccontextmanager
    async def log(
        self, *, provision: bool | None = False, redact: Redact | None = None
    ) -> AsyncGenerator[Log]:
        """A connection to the tenant's log; looking at it never makes a stream."""
        async with connect(
            nats=self.nats,
            redis=self.redis,
            tenant=self.tenant,
            prefix=self.prefix,
            provision=provision,
            redact=redact,
        ) as log:
            yield log


def read(
    nats: str | None,
    redis: str | None,
    tenant: str | None,
    prefix: str | None,
    nats_context: str | None,
) -> Target:
    """The target that options and environment name; ends the command if they cannot be meant."""
    try:
        return Target(
            nats=access.resolve(nats, context=nats_context),
            redis=access.redis_url(redis),
            tenant="default" if tenant is None else names.token("tenant", tenant),
            prefix=names.PREFIX if prefix is None else _prefix(prefix),
        )
    except FlightlogError as exc:
        stop(exc)


def _prefix(text: str) -> str:
    if not all(
        part and part.isprintable() and not set(part) & set(" *>") for part in text.split(".")
    ):
        raise Usage("--prefix is a NATS subject without wildcards or spaces, such as flightlog.v1")
    return text


def of(context: typer.Context) -> Target:
    """The target of the command that is being run."""
    found: Target = context.obj
    return found


def run(work: Coroutine[Any, Any, int | None]) -> NoReturn:
    """Run a command to its exit code; whatever goes wrong is one line on stderr."""
    try:
        code = asyncio.run(work)
    except FlightlogError as exc:
        stop(exc)
    except typer.Exit:  # somebody said already why
        raise
    except BrokenPipeError:
        mute()
        raise typer.Exit(Exit.FINE) from None
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except OSError as exc:
        note(f"{exc.strerror or type(exc).__name__}: {exc.filename or 'the system said no more'}")
        raise typer.Exit(Exit.PROBLEM) from exc
    except Exception as exc:
        if os.environ.get(DEBUG):
            raise
        note(f"this is a bug ({place(exc)}); {DEBUG}=1 shows where it comes from")
        raise typer.Exit(Exit.PROBLEM) from exc
    raise typer.Exit(code or Exit.FINE)


def stop(error: FlightlogError) -> NoReturn:
    """End the command with one line on stderr."""
    note(str(error))
    raise typer.Exit(exit_code(error)) from error


def labels(given: list[str] | None) -> dict[str, str]:
    """Labels as the options give them; other texts end the command."""
    pairs = [text.partition("=") for text in given or []]
    if not all(name and equals for name, equals, _ in pairs):
        stop(Usage("--label takes NAME=VALUE"))
    return {name: value for name, _, value in pairs}


def bus_of(log: Log) -> NatsBus:
    """The log's connection as what it is: commands look after streams, sessions never do."""
    if not isinstance(log.bus, NatsBus):
        raise TypeError(type(log.bus).__name__)
    return log.bus


def one_session(text: str | None, key: str | None) -> None:
    """See that exactly one session is named, before anybody is asked about it."""
    if (text is None) == (key is None):
        raise Usage("name one session: its id, or --key")


async def session_id(log: Log, text: str | None, *, key: str | None = None) -> str:
    """The session that an id or a key names; keys that look like minted ids need --key."""
    if text is not None and text.startswith("sess_"):
        return names.token("session id", text)
    found = await log.look_up(text if text is not None else key or "")
    if found is not None:
        return found
    if text is None:
        raise NoSuchKey
    try:
        return names.token("session id", text)
    except InvalidName:
        raise NoSuchKey from None
