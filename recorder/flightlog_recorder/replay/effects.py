"""What was done outside the log and stays done, whatever is replayed or forked. Pure."""

from collections import Counter
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ToolCall
from flightlog_recorder.inspect.telling import cut

LOOKED = 10_000  # events that are looked through: a second's reading
KEPT = 20  # effects that are told one by one; the rest is counted


class Effect(Struct, frozen=True):
    """A tool call that is not marked read-only."""

    seq: int
    tool: str


class Effects(Struct, frozen=True):
    """The external effects in a part of a log: the first of them, and how many by tool.

    `upto` is the last event that was looked at, where more lie behind it.
    """

    count: int = 0
    first: tuple[Effect, ...] = ()
    tools: dict[str, int] = {}
    upto: int | None = None


def effect(event: Event) -> Effect | None:
    """The effect that the event may have had: that of a tool that was not declared to only read."""
    if event.type != "tool_call":
        return None
    call = payloads.decode(event.type, event.raw)
    if isinstance(call, ToolCall) and call.effect != "read":
        return Effect(event.seq, call.name)
    return None


Read = Callable[..., AsyncIterator[Event]]  # takes `after` and `until`


async def effects(read: Read, *, after: int, among: int = LOOKED) -> Effects:
    """The effects behind an event, `among` the next ones, those under way there included."""
    first: list[Effect] = []
    tools: Counter[str] = Counter()
    upto, more = after + among, False
    async for event in read(after=after, until=upto + 1):
        more = event.seq > upto
        if not more and (found := effect(event) or await _ended(read, event, after)):
            tools[found.tool] += 1
            if len(first) < KEPT:
                first.append(found)
    return Effects(tools.total(), tuple(first), dict(tools), upto if more else None)


async def _ended(read: Read, result: Event, after: int) -> Effect | None:
    """The effect of a call that was under way behind event `after`, and has its result here."""
    called = result.parent_seq or 0
    if result.type != "tool_result" or not 0 < called <= after:
        return None
    return next(iter([effect(event) async for event in read(after=called - 1, until=called)]), None)


def told(found: Effects, *, after: int) -> str:
    """One line; empty when there are none."""
    unseen = f"; what lies behind {found.upto:,} was not looked at" if found.upto else ""
    if not found.count:
        return f"no external effect up to {found.upto:,}{unseen}" if found.upto else ""
    one = found.count == 1
    places = ", ".join(f"{each.seq} {cut(each.tool, width=40)}" for each in found.first[:6])
    more = f" and {found.count - 6} more" if found.count > 6 else ""
    what = f"{found.count:,} external {'effect' if one else 'effects'} after {after:,}"
    return f"{what} {'is' if one else 'are'} not undone: {places}{more}{unseen}"
