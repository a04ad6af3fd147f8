"""An agent that gives its work to sub-agents: `python -m tests.system.harnesses.parent KEY FOLDER`.

Both are the same loop. Two sub-agents work at once, each in a session of its own, opened by the
tool call that it works for.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Session
from flightlog.wire.carry import unpack
from tests.scripted import asks, says
from tests.system.harnesses import doom

FOLDER = Path(sys.argv[2])


async def lead(messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
    """Give both parts away, then report."""
    if len(messages) == 1:
        return asks(
            ("left", "research", {"part": "left"}), ("right", "research", {"part": "right"})
        )
    return says(json.dumps([block["content"] for block in messages[-1]["content"]]))


async def researcher(messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
    """Look something up twice, then sum up."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn < 2:
        return asks((f"look_{turn}", "look", {"at": f"{messages[0]['content']} {turn}"}))
    return says(json.dumps([block["content"] for m in messages[2::2] for block in m["content"]]))


async def research(session: Session, call: Call, part: str) -> Any:
    async with session.child(call, name="researcher", on_event=doom.acked) as child:
        await loop(child, part, researcher)
        return unpack(child.state.result)


async def look(_: Session, call: Call, at: str) -> str:
    doom.effect(FOLDER, f"{at.replace(' ', '_')}:{call.call_id}")
    return f"{at} was looked at"


async def run_tool(session: Session, call: Call) -> None:
    tool = research if call.name == "research" else look
    await session.tool_call(
        call, run=lambda **arguments: tool(session, call, **arguments), on_resume="rerun"
    )


async def loop(session: Session, task: str, model: Any) -> None:
    await session.user_message(task, once="task")
    while not isinstance(step := session.state.next, Ended | Decide | AwaitUser):
        match step:
            case CallModel():
                request = {"model": "m", "messages": session.state.messages()}
                await session.model_call(request, call=model)
            case RunTools(calls):
                await asyncio.gather(*(run_tool(session, call) for call in calls))
    if isinstance(step, AwaitUser):
        await session.end(result=session.state.messages()[-1])


async def main() -> None:
    async with (
        flightlog.connect() as log,
        log.session(key=sys.argv[1], on_event=doom.acked) as session,
    ):
        await loop(session, "everything", lead)


if __name__ == "__main__":
    asyncio.run(main())
