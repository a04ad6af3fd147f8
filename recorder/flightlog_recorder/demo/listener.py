"""The live listener: hears the demo's sessions on core NATS, and tells each turn as it happens.

It only shows. Whatever the demo decides or claims is read from the log.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flightlog.bus.protocol import Listening, Message
from flightlog.errors import InvalidEvent
from flightlog.event import Event, decode
from flightlog.log import Log
from flightlog.wire import carry
from flightlog.wire import payload as payloads
from flightlog.wire.payload import (
    ModelResponse,
    SessionResumed,
    SessionStarted,
    ToolCall,
    ToolResult,
)
from flightlog_recorder.demo.model import AUDITS
from flightlog_recorder.demo.narrator import Narrator

PATIENCE = 30.0  # seconds for anything the demo waits for; it takes one or two
_LOOK_AGAIN = 0.5  # seconds between looks at the process that should make news


@dataclass
class Heard:
    """What was heard of one session so far."""

    seq: int = 0
    turn: int = 0
    writers: int = 0
    tools: dict[str, str] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def described(self, call_id: str) -> str:
        """A call of this turn by its tool, with what the tool declares about running again."""
        return f"{self.tools.get(call_id, call_id)} (on_resume: {self.policies.get(call_id)})"


class Listener:
    """Hears every event of a tenant's sessions. `detailed` tells each turn, not only its number."""

    def __init__(self, log: Log, narrator: Narrator) -> None:
        self._log, self._narrator = log, narrator
        self._news = asyncio.Event()
        self._listening: Listening | None = None
        self.sessions: dict[str, Heard] = {}
        self.detailed = False

    async def start(self) -> None:
        """Listen from now on."""
        subject = f"{self._log.bus.layout.prefix}.*.{self._log.tenant}.*.live"
        self._listening = await self._log.bus.listen(subject, self._hear)

    async def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            await self._listening.close()

    async def until(self, condition: Callable[[], bool], *, alive: Callable[[], bool]) -> bool:
        """Wait until news make the condition true; false when the process in question is gone.

        Also false after `PATIENCE` seconds.
        """
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or not alive():
                return False
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), _LOOK_AGAIN)
        return True

    async def _hear(self, message: Message) -> None:
        with suppress(InvalidEvent):
            event = decode(message.body)
            if isinstance(event, Event):
                self._take(event)
                self._news.set()

    def _take(self, event: Event) -> None:
        heard = self.sessions.setdefault(event.session_id, Heard())
        heard.seq = max(heard.seq, event.seq)
        heard.counts[event.type] += 1
        match payloads.decode(event.type, event.raw):
            case SessionStarted():
                heard.writers = 1
                self._narrator.line("started", f"session {event.session_id}")
            case SessionResumed() as resumed:
                heard.writers = resumed.writer.number
                self._narrator.line("resumed", _resumed(event.seq, resumed, heard))
            case ModelResponse(message=message):
                self._turn(carry.unpack(message), heard)
            case ToolCall() as call:
                heard.policies[call.call_id] = call.on_resume
            case ToolResult() as result if self.detailed and heard.turn > len(AUDITS):
                name = heard.tools.get(result.call_id, result.call_id)
                self._narrator.line("", f"{name}: {result.outcome}, recorded")
            case _:
                pass

    def _turn(self, message: dict[str, Any], heard: Heard) -> None:
        heard.turn += 1
        heard.counts["tool_result"] = 0
        blocks = message["content"]
        heard.tools = {b["id"]: b["name"] for b in blocks if b["type"] == "tool_use"}
        asked = f"  →  {_listed(heard.tools.values())}" if heard.tools else ""
        if self.detailed:
            self._narrator.line(f"turn {heard.turn}", f"“{blocks[0]['text']}”{asked}")
        else:
            self._narrator.progress(f"turn {heard.turn}, {heard.seq} events stored")


def _listed(tools: Iterable[str]) -> str:
    counted = Counter(tools).items()
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counted)


def _resumed(at: int, resumed: SessionResumed, heard: Heard) -> str:
    seq = resumed.snapshot
    read = f"snapshot at {seq} + {at - 1 - seq} events" if seq else f"{at - 1} events of the log"
    calls = [heard.described(call.call_id) for call in resumed.in_flight]
    return f"from {read}; in flight: {', '.join(calls) or 'nothing'}"
