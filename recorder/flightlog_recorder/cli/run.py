"""`flightlog run`: a scheduled job, one session for each scheduled time."""

import functools
import os
import shutil
from typing import Annotated

import typer
from msgspec.structs import replace

from flightlog import environment
from flightlog.bus import access
from flightlog.running import opening
from flightlog_recorder import named
from flightlog_recorder.cli import target
from flightlog_recorder.cli.output import Usage, note
from flightlog_recorder.cli.target import Labels, Target
from flightlog_recorder.run.job import Job, Runner
from flightlog_recorder.run.verdict import Rules

# What the options before the command say, for the program too.
CONNECTION = {
    "nats": "FLIGHTLOG_NATS_URL",
    "nats_context": "FLIGHTLOG_NATS_CONTEXT",
    "redis": "FLIGHTLOG_REDIS_URL",
    "tenant": "FLIGHTLOG_TENANT",
    "prefix": "FLIGHTLOG_SUBJECT_PREFIX",
}


SETTINGS = {"allow_interspersed_args": False}  # what follows the program's name is its own


def command(
    context: typer.Context,
    program: Annotated[
        list[str], typer.Argument(metavar="PROGRAM", help="The program and its arguments.")
    ],
    *,
    key: Annotated[str, typer.Option(help="What the job is called.")],
    schedule_time: Annotated[
        str | None,
        typer.Option(help="Each scheduled time has a session of its own: KEY/TIME."),
    ] = None,
    label: Labels = None,
    retries: Annotated[
        int, typer.Option(min=0, help="Restarts after a crash, counted over all pods.")
    ] = 3,
    backoff: Annotated[
        float, typer.Option(min=0, help="Seconds before the first restart, doubled each time.")
    ] = 1.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that the program has to end when told to.")
    ] = 20.0,
    stderr_lines: Annotated[
        int, typer.Option(min=0, max=1_000, help="Last lines of its stderr to keep in the log.")
    ] = 20,
    redact: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Redacts the texts that are kept."),
    ] = None,
) -> None:
    """Run a program that records a session, and end the session by its exit code.

    A retried pod resumes the session of its scheduled time; the next time gets a new one. A crash
    is followed by a restart; after the last one the session is failed. Exit codes: the program's
    own; 1 failed, 3 no bus, 4 another writer has the session, 143 stopped by SIGTERM.
    """
    rules = Rules(retries=retries, run=environment.mint_run())
    job = Job(
        command=tuple(program),
        environment=_connection(context),
        key=key if schedule_time is None else f"{key}/{schedule_time}",
        labels={},
        rules=rules,
        grace=grace,
        backoff=backoff,
        lines=stderr_lines,
    )
    if not key or schedule_time == "":
        target.stop(Usage("--key and --schedule-time must not be empty: is a variable unset?"))
    target.run(_run(target.of(context), job, label, redact))


async def _run(where: Target, job: Job, label: list[str] | None, redact: str | None) -> int:
    if shutil.which(job.command[0]) is None:
        raise Usage(f"there is no program {job.command[0]} here that can be run")
    job = replace(job, labels=target.labels(label))
    opening.check(job.key, None, job.labels, "")
    found = None if redact is None else named.load(redact, what="--redact")
    os.environ |= told(job)  # ours too: we are of this run when we open the session
    connect = functools.partial(where.log, redact=found)
    return await Runner(replace(job, environment={**os.environ}), connect, note).run()


def told(job: Job) -> dict[str, str]:
    """What the program finds in its environment beside ours."""
    labels = environment.labels() | job.labels
    return {
        **job.environment,
        environment.SESSION_KEY: job.key,
        environment.LABELS: environment.write_labels(labels),
        environment.RUN: job.rules.run,
    }


def _connection(context: typer.Context) -> dict[str, str]:
    """The options before the command, under the names that the program reads."""
    above = context.parent or context
    said = {
        name: above.params[option]
        for option, name in CONNECTION.items()
        if above.params.get(option)
    }
    if access.CONTEXT not in said:
        return said
    source = above.get_parameter_source("nats")
    typed = source is not None and source.name == "COMMANDLINE"
    proofs = [name for name in access.VARIABLES if name.startswith(access.PREFIX)]
    hidden = {name for name in proofs if name not in said or not typed} - {access.CONTEXT}
    return said | dict.fromkeys(hidden, "")  # a context comes before what our environment says
