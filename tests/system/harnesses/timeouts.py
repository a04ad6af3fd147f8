"""A loop with a time limit on everything: `python -m tests.system.harnesses.timeouts KEY FOLDER`.

The model hangs until it was given up once; of the tools, `slow` never returns, and the user takes
back `doubtful` while it runs. What the model says in the end quotes what it was told of each.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Session
from tests.scripted import asks, says
from tests.system.harnesses import doom

FOLDER = Path(sys.argv[2])
LIMIT = 0.15  # seconds; what is in time takes no time at all


async def model(messages: list[dict[str, Any]], *, hangs: bool) -> dict[str, Any]:
    """Ask for the tools one after the other, then quote what they gave."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if hangs:
        await asyncio.Event().wait()
    names = ["quick", "slow", "doubtful", "quick"]
    if turn < len(names):
        return asks((f"call_{turn}", names[turn], {}))
    given = [block["content"] for m in messages[2::2] for block in m["content"]]
    return says(json.dumps(given))


async def quick(call: Call) -> str:
    doom.effect(FOLDER, call.call_id)
    return "done"


async def hanging(call: Call) -> str:
    doom.effect(FOLDER, call.call_id)
    await asyncio.Event().wait()
    return "never"


async def call_model(session: Session) -> None:
    given_up = session.state.counts.get("errors", 0) > 0
    request = {"model": "m", "messages": session.state.messages()}
    try:
        async with asyncio.timeout(LIMIT if not given_up else None):
            await session.model_call(
                request, call=lambda messages, **_: model(messages, hangs=not given_up)
            )
    except TimeoutError:
        print("the model was given up", flush=True)


async def run_tool(session: Session, call: Call) -> None:
    tool = quick if call.name == "quick" else hanging
    work = session.tool_call(call, run=lambda: tool(call), on_resume="rerun")
    if call.name == "doubtful":
        await taken_back(asyncio.create_task(work), call)
        return
    try:
        async with asyncio.timeout(LIMIT if call.name == "slow" else None):
            await work
    except TimeoutError:
        print("a tool was given up", flush=True)


async def taken_back(task: "asyncio.Task[Any]", call: Call) -> None:
    """The user cancels a call as soon as it does something."""
    before = doom.effects(FOLDER).count(call.call_id)
    while not task.done() and doom.effects(FOLDER).count(call.call_id) == before:
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.wait([task])


async def main() -> None:
    async with (
        flightlog.connect() as log,
        log.session(key=sys.argv[1], on_event=doom.acked) as session,
    ):
        await session.user_message("go", once="task")
        while not isinstance(step := session.state.next, Ended | Decide | AwaitUser):
            match step:
                case CallModel():
                    await call_model(session)
                case RunTools(calls):
                    await run_tool(session, calls[0])
        if isinstance(step, AwaitUser):
            await session.end(result=session.state.messages()[-1])


if __name__ == "__main__":
    asyncio.run(main())
