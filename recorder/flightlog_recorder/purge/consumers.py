"""Who still has to see a session's last event: the durable consumers of its stream."""

import json
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from flightlog.bus.nats_bus import NatsBus


class Consumer(Struct, frozen=True):
    """A durable consumer, and whether it is done with everything up to a stream sequence."""

    name: str
    is_past: bool


async def behind(bus: NatsBus, stream: str, sequence: int) -> list[str]:
    """The durable consumers that have not acknowledged all up to `sequence`."""
    found = [_read(row, sequence) async for row in _consumers(bus, stream)]
    return sorted(each.name for each in found if not each.is_past)


async def _consumers(bus: NatsBus, stream: str) -> AsyncIterator[dict[str, Any]]:
    seen = 0
    while True:
        query = json.dumps({"offset": seen}).encode()
        answered = await bus.api(f"CONSUMER.LIST.{stream}", query)
        rows = answered.get("consumers") or []
        for row in rows:
            if row["config"].get("durable_name"):
                yield row
        seen += len(rows)
        if not rows or seen >= answered.get("total", 0):
            return


def _read(row: dict[str, Any], sequence: int) -> Consumer:
    idle = not row.get("num_pending") and not row.get("num_ack_pending")
    floor = row.get("ack_floor", {}).get("stream_seq", 0)
    return Consumer(row["name"], idle or floor >= sequence)
