"""What an operator changes by hand, as the `nats` command does it."""

import json
from typing import Any

from flightlog.bus.nats_bus import NatsBus


async def edit(bus: NatsBus, stream: str, **changes: Any) -> None:
    """What `nats stream edit` does."""
    [config] = [each for each in await bus.stream_configs() if each["name"] == stream]
    request = json.dumps({**config, **changes}).encode()
    answer = await bus.api(f"STREAM.UPDATE.{stream}", request)
    assert "error" not in answer, answer
