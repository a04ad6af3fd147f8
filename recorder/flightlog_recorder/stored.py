"""When a message was stored, as its stream's leader knows."""

import json
from datetime import datetime
from typing import Any

from flightlog.bus.nats_bus import NatsBus


async def stored_at(
    bus: NatsBus, stream: str, query: dict[str, Any]
) -> tuple[int, datetime] | None:
    """A message's stream sequence, and its time by the broker's clock; None if there is none."""
    answered = await bus.api(f"STREAM.MSG.GET.{stream}", json.dumps(query).encode())
    found = answered.get("message")
    return (found["seq"], datetime.fromisoformat(found["time"])) if found else None
