"""Carries out a plan on a broker. Running it again changes nothing."""

from msgspec import Struct

from flightlog.bus import nats_bus
from flightlog.bus.nats_bus import NatsBus
from flightlog.wire import layout
from flightlog_recorder.provision.plan import Plan, Refusal, Wish, plan


class Made(Struct, frozen=True):
    """What was made, what was there, and what was left alone because it is something else."""

    created: list[str]
    there: list[str]
    refused: list[Refusal]
    replicas: int = 1
    streams: int = 1


async def provision(bus: NatsBus, wish: Wish) -> Made:
    """Create what is missing; nothing at all while any stream has other settings.

    `bus` needs no layout. Raises `LayoutRefused` (a stream cannot be made), `NotPermitted`,
    `BusUnavailable`.
    """
    found = plan(wish, await bus.stream_configs())
    if found.refused:
        return Made(created=[], there=found.there, refused=found.refused)
    await nats_bus.create(bus, found.create)
    known = layout.read_layout(await bus.stream_configs(), prefix=wish.prefix)
    return Made(
        created=_names(found),
        there=found.there,
        refused=[],
        replicas=known.replicas,
        streams=len(known.streams),
    )


def _names(found: Plan) -> list[str]:
    return [config["name"] for config in found.create]
