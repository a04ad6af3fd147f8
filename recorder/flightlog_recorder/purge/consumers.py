"""Who still has to see a session's last event: the durable consumers of its stream."""

from typing import Any

from msgspec import Struct

from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import consumers


class Consumer(Struct, frozen=True):
    """A durable consumer, and whether it is done with everything up to a stream sequence."""

    name: str
    is_past: bool


async def behind(bus: NatsBus, stream: str, sequence: int) -> list[str]:
    """The durable consumers that have not acknowledged all up to `sequence`."""
    found = [_read(row, sequence) async for row in consumers(bus, stream)]
    return sorted(each.name for each in found if not each.is_past)


def _read(row: dict[str, Any], sequence: int) -> Consumer:
    idle = not row.get("num_pending") and not row.get("num_ack_pending")
    floor = row.get("ack_floor", {}).get("stream_seq", 0)
    return Consumer(row["name"], idle or floor >= sequence)
