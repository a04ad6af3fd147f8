"""`flightlog demo`: the product in half a minute."""

import asyncio
import os
from contextlib import nullcontext
from typing import Annotated, Any

import msgspec
import typer

from flightlog_recorder import embedded
from flightlog_recorder.demo import story
from flightlog_recorder.demo.narrator import Narrator, Silent, Told

FOUND_PROBLEM = 1


def command(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Kill an agent in the middle of a turn, and see another process finish its work."""
    with nullcontext(Silent()) if json else Told() as narrator:
        told = _tell(narrator)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report(told)), indent=2).decode())
    if not told.good:
        raise typer.Exit(FOUND_PROBLEM)


def _tell(narrator: Narrator) -> story.Told:
    narrator.chapter("Flightlog: an agent dies in the middle of a turn, and nothing is lost")
    with embedded.servers() as servers:
        narrator.line("servers", "NATS and Redis are up; acked means on disk")
        tenant = os.environ.get("FLIGHTLOG_TENANT", "demo")
        told = asyncio.run(story.tell(servers, narrator, tenant=tenant))
    verdict = "nothing was lost, nothing was done twice" if told.good else "not as promised"
    narrator.chapter(f"Done in {told.seconds} s: {verdict}")
    return told


def report(told: story.Told) -> dict[str, Any]:
    """What machines read: the killed run's facts, those of the run with Redis emptied below."""
    fields: dict[str, Any] = msgspec.to_builtins(told)
    return {**fields.pop("killed"), **fields}
