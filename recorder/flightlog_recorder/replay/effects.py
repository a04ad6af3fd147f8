"""What was done outside the log and stays done, whatever is replayed or forked. Pure."""

from collections import Counter
from collections.abc import AsyncIterable

from msgspec import Struct

from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ToolCall
from flightlog_recorder.inspect.telling import cut

KEPT = 20  # effects that are told one by one; the rest is counted


class Effect(Struct, frozen=True):
    """A tool call that is not marked read-only."""

    seq: int
    tool: str


class Effects(Struct, frozen=True):
    """The external effects in a part of a log: the first of them, and how many by tool."""

    count: int = 0
    first: tuple[Effect, ...] = ()
    tools: dict[str, int] = {}


def effect(event: Event) -> Effect | None:
    """The effect that the event may have had: that of a tool that was not declared to only read."""
    if event.type != "tool_call":
        return None
    call = payloads.decode(event.type, event.raw)
    if isinstance(call, ToolCall) and call.effect != "read":
        return Effect(event.seq, call.name)
    return None


async def effects(events: AsyncIterable[Event]) -> Effects:
    """The effects among the events."""
    first: list[Effect] = []
    tools: Counter[str] = Counter()
    async for event in events:
        if found := effect(event):
            tools[found.tool] += 1
            if len(first) < KEPT:
                first.append(found)
    return Effects(tools.total(), tuple(first), dict(tools))


def told(found: Effects, *, after: int) -> str:
    """One line; empty when there are none."""
    if not found.count:
        return ""
    one = found.count == 1
    places = ", ".join(f"{each.seq} {cut(each.tool, width=40)}" for each in found.first[:6])
    more = f" and {found.count - 6} more" if found.count > 6 else ""
    what = f"{found.count:,} external {'effect' if one else 'effects'} after {after:,}"
    return f"{what} {'is' if one else 'are'} not undone: {places}{more}"
