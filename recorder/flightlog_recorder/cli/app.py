"""The command line as a whole: the options before the command, and the commands."""

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flightlog_recorder.cli import (
    export,
    fork,
    importing,
    ls,
    provision,
    purge,
    resolve,
    show,
    tail,
    target,
    up,
    verify,
)

# Loaded when asked for: they bring their own weight, and may be left out of an installation.
LAZY = {
    "run": "flightlog_recorder.cli.run",
    "replay": "flightlog_recorder.cli.replay",
    "inspect": "flightlog_recorder.cli.inspect",
    "subscribe": "flightlog_recorder.cli.subscribe",
    "doctor": "flightlog_recorder.cli.doctor",
    "demo": "flightlog_recorder.demo.command",
    "bench": "flightlog_recorder.bench.command",
}


class _Commands(TyperGroup):
    """All commands; those of `LAZY` are imported only when they are named."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in LAZY if _is_there(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in LAZY and _is_there(cmd_name):
            return _load(cmd_name)
        return super().get_command(ctx, cmd_name)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(LAZY[name]) is not None
    except ModuleNotFoundError:
        return False


def _load(name: str) -> Any:
    """The module's `command`, a function with typer's annotations."""
    alone = typer.Typer(add_completion=False)
    module = importlib.import_module(LAZY[name])
    alone.command(name, context_settings=getattr(module, "SETTINGS", None))(module.command)
    return typer.main.get_command(alone)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="The flight recorder for fleets of AI agents: look after the log of their sessions.",
    epilog="Exit codes: 0 fine, 1 found a problem, 2 wrong usage, 3 no bus, 4 fenced.",
)


@app.callback()
def main(
    context: typer.Context,
    *,
    nats: Annotated[
        str | None,
        typer.Option(
            envvar="FLIGHTLOG_NATS_URL",
            help="NATS servers, with commas between them.",
            show_default="nats://127.0.0.1:4222",
        ),
    ] = None,
    nats_context: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A context of the nats command: servers and credentials. "
            "FLIGHTLOG_NATS_CONTEXT does the same.",
        ),
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(envvar="FLIGHTLOG_REDIS_URL", help="Redis or Valkey: catalog and snapshots."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(envvar="FLIGHTLOG_TENANT", help="Whose sessions.", show_default="default"),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            envvar="FLIGHTLOG_SUBJECT_PREFIX",
            help="The prefix of all subjects.",
            show_default="flightlog.v1",
        ),
    ] = None,
) -> None:
    """Remember where the command is to work."""
    source = context.get_parameter_source("nats")
    typed = nats if source is not None and source.name == "COMMANDLINE" else None
    context.obj = target.read(typed, redis, tenant, prefix, nats_context)


app.command("up")(up.up)
app.command("provision")(provision.provision)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("tail")(tail.tail)
app.command("resolve")(resolve.resolve)
app.command("verify")(verify.verify)
app.command("export")(export.export)
app.command("fork")(fork.fork)
app.command("purge")(purge.purge)
app.add_typer(importing.app, name="import")
