"""What a session did outside, by tools that are not read-only: no fork undoes it."""

from collections import Counter

from flightlog import Log
from flightlog import payload as payloads


async def effects(log: Log, session: str, *, after: int) -> Counter[str]:
    """How often each tool that may have changed something was started after event `after`."""
    found = Counter[str]()
    async for event in log.read(session, after=after):
        said = payloads.decode(event.type, event.raw)
        if isinstance(said, payloads.ToolCall) and said.effect != "read":
            found[said.name] += 1
    return found
