"""A hook, from hook_call to hook_decision."""

import asyncio
from collections.abc import Callable
from typing import Any

from flightlog.running.journal import UNRECORDABLE, Journal
from flightlog.wire import carry
from flightlog.wire.payload import HookCall, HookDecision


async def run(
    journal: Journal, name: str, event: Any, work: Callable[..., Any], *, reason: str | None
) -> Any:
    """Record the hook's call, ask it, record and return its decision, decoded."""
    packed = journal.pack(event, f"event of hook {name}")
    cancelled = _failed("CancelledError")
    asked = await journal.begin(journal.record(HookCall(hook=name, event=packed)), cancelled)
    try:
        decided = await journal.run(work, {"event": event})
        stored = journal.pack(decided, f"decision of hook {name}")
    except asyncio.CancelledError:
        if not journal.halted:
            await journal.shielded(journal.record(cancelled, parent=asked.seq))
        raise
    except Exception as exc:
        if not journal.halted:
            await journal.record(_failed(type(exc).__name__), parent=asked.seq)
        raise
    made = HookDecision(decision=stored, reason=journal.text(reason))
    try:
        await journal.outlive(journal.record(made, parent=asked.seq))
    except UNRECORDABLE as exc:
        await journal.record(_failed(type(exc).__name__), parent=asked.seq)
        raise
    return carry.unpack(stored)


def _failed(why: str) -> HookDecision:
    return HookDecision(reason=why, outcome="failed")
