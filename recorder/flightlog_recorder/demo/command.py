"""`flightlog demo`: the product in half a minute."""

from contextlib import nullcontext
from typing import Annotated, Any

import msgspec
import typer

from flightlog_recorder.cli import output, target
from flightlog_recorder.cli.output import Exit
from flightlog_recorder.demo import story
from flightlog_recorder.demo.narrator import Narrator, Silent, Told
from flightlog_recorder.embedded import embedded

TENANT = "demo"


def command(
    context: typer.Context,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Kill an agent in the middle of a turn, and see another process finish its work."""
    target.run(_run(context.parent.params if context.parent else {}, json=json))


async def _run(given: dict[str, Any], *, json: bool) -> Exit:
    with nullcontext(Silent()) if json else Told() as narrator:
        told = await _tell(given, narrator)
    if json:
        output.show_json(report(told))
    return Exit.FINE if told.good else Exit.PROBLEM


async def _tell(given: dict[str, Any], narrator: Narrator) -> story.Told:
    narrator.chapter("Flightlog: an agent dies in the middle of a turn, and nothing is lost")
    with embedded(nats_url=given.get("nats"), redis_url=given.get("redis")) as servers:
        told = await story.tell(servers, narrator, tenant=given.get("tenant") or TENANT)
    verdict = "nothing was lost, nothing was done twice" if told.good else "not as promised"
    narrator.chapter(f"Done in {told.seconds} s: {verdict}")
    return told


def report(told: story.Told) -> dict[str, Any]:
    """What machines read: the killed run's facts, those of the run with Redis emptied below."""
    fields: dict[str, Any] = msgspec.to_builtins(told)
    return {**fields.pop("killed"), **fields}
