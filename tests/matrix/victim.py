"""The process that is killed: `victim ROLE KEY FOLDER LAST LOST`. Every kind of append is in it.

It dies at its LAST-th await point (0: never). Of its appends every LOST-th loses its ack on the way
back (0: none), so that read-backs are among the places. What is acked is written down first. Roles:
`agent` runs the session, `dying` the same until its tools are running, `purge` purges it.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, CallModel, Decide, Ended, Event, RunTools, Session
from flightlog.bus.answer import Acked, Answer, Unclear
from flightlog.bus.nats_bus import NatsBus
from flightlog_recorder.purge import purge
from flightlog_recorder.purge.purge import Reason
from tests.matrix.awaits import Fate, watch

ROLE, KEY, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])
LAST, LOST = int(sys.argv[4]), int(sys.argv[5])


def write_down(file: str, line: str) -> None:
    """One line by one write: it is there whole, whatever happens next."""
    with (FOLDER / file).open("ab", buffering=0) as target:
        target.write(f"{line}\n".encode())


def acked(event: Event) -> None:
    write_down("acked", f"{event.seq} {event.digest}")


@flightlog.tool(on_resume="rerun", effect="read")
async def look(n: int) -> str:
    write_down("effects", "look")
    return f"looked {n}"


@flightlog.tool(on_resume="fail")
async def send(n: int) -> str:
    write_down("effects", "send")
    return f"sent {n}"


@flightlog.tool(on_resume="ask")
async def pay(n: int) -> str:
    write_down("effects", "pay")
    if ROLE == "dying":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {n}"


TOOLS: dict[str, Callable[..., Any]] = {"look": look, "send": send, "pay": pay}


async def model(messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
    """Two turns of one call of each tool, then a last word."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn == 2:
        return {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    calls = [
        {"type": "tool_use", "id": f"{name}{turn}", "name": name, "input": {"n": turn}}
        for name in TOOLS
    ]
    return {"role": "assistant", "content": calls, "stop_reason": "tool_use"}


async def loop(session: Session) -> None:
    await session.user_message("go", once="task")
    await session.value("day", lambda: "2026-05-06")
    await session.effect("mail", lambda: write_down("effects", "mail"), on_resume="rerun")
    await asyncio.gather(*(session.user_message(f"n{n}", once=f"n{n}") for n in range(10)))
    while not isinstance(step := session.state.next, Ended | Decide | AwaitUser):
        match step:
            case CallModel():
                request = {"model": "m", "messages": session.state.messages()}
                await session.model_call(request, call=model)
            case RunTools(calls):
                await asyncio.gather(*(session.tool_call(c, run=TOOLS[c.name]) for c in calls))
    if isinstance(step, AwaitUser):
        await session.end(result="done")


def lose_acks(bus: Any) -> None:
    """Every LOST-th append is stored, and its ack never arrives."""
    real, count = bus.append, 0

    async def append(*given: Any, **named: Any) -> Answer:
        nonlocal count
        count += 1
        answer: Answer = await real(*given, **named)
        lost = LOST and count % LOST == 0 and isinstance(answer, Acked)
        return Unclear("its ack was lost") if lost else answer

    bus.append = append


async def main() -> None:
    fate = Fate(LAST, FOLDER / "place")
    watch(asyncio.get_running_loop(), fate)
    await asyncio.create_task(_purge() if ROLE == "purge" else _session())
    (FOLDER / "awaits").write_text(str(fate.count))


async def _session() -> None:
    async with flightlog.connect() as log:
        lose_acks(log.bus)
        async with log.session(key=KEY, on_event=acked, tools=TOOLS) as session:
            await loop(session)


async def _purge() -> None:
    async with flightlog.connect() as log:
        assert isinstance(log.bus, NatsBus)
        lose_acks(log.bus)
        session = (FOLDER / "session").read_text()
        await purge(log, log.bus, session, reason=Reason(by="a tester", why="the matrix"))


if __name__ == "__main__":
    asyncio.run(main())
