"""A scripted model that speaks Anthropic's format, and what tests ask of a session's log."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from flightlog import Event, Log, Session, Step

TENANT = "acme"


def says(text: str, **usage: int) -> dict[str, Any]:
    """A model's message that asks for nothing."""
    return _message([{"type": "text", "text": text}], "end_turn", usage)


def asks(*calls: tuple[str, str, dict[str, Any]], **usage: int) -> dict[str, Any]:
    """A model's message that asks for tool calls, each given as (id, name, arguments)."""
    blocks = [{"type": "tool_use", "id": i, "name": name, "input": a} for i, name, a in calls]
    return _message(blocks, "tool_use", usage)


def _message(blocks: list[dict[str, Any]], stop: str, usage: dict[str, int]) -> dict[str, Any]:
    counted = {"input_tokens": 10, "output_tokens": 5} | usage
    return {"role": "assistant", "content": blocks, "stop_reason": stop, "usage": counted}


class Model:
    """Answers with the next line of its script; remembers what it was asked."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self._script = list(script)
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        line = self._script.pop(0)
        if isinstance(line, Exception):
            raise line
        return line


def owed(session: Session) -> Step:
    """What the session says is next."""
    return session.state.next


async def stored(log: Log, id: str) -> list[Event]:
    """All events of a session, as the log has them."""
    return [event async for event in log.read(id)]


async def types(log: Log, id: str) -> list[str]:
    """The types of a session's events."""
    return [event.type for event in await stored(log, id)]


async def payloads(log: Log, id: str, type: str) -> list[Any]:
    """The payloads of a session's events of one type."""
    return [event.payload for event in await stored(log, id) if event.type == type]


async def until(condition: Callable[[], Awaitable[Any] | Any], *, timeout: float = 10.0) -> Any:
    """Wait until the condition gives something true, and return that."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout} s"
        await asyncio.sleep(0.01)


def chain_is_whole(events: Sequence[Event]) -> bool:
    """Whether seq is dense from 1 and each body is the one that the next names."""
    digests = [None, *(event.digest for event in events)]
    fits = [event.seq == at and event.prev == digests[at - 1] for at, event in enumerate(events, 1)]
    return all(fits)
