"""A loop that streams, and owns its executor: the two-step forms of both calls.

`python -m tests.system.harnesses.streaming KEY FOLDER`. The model's text comes word by word and is
shown as it comes; each tool runs in a process of the harness' own.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Session
from tests.scripted import asks, says
from tests.system.harnesses import doom

FOLDER = Path(sys.argv[2])
TURNS = 3


async def stream(messages: list[dict[str, Any]]) -> AsyncIterator[str | dict[str, Any]]:
    """Words, then the whole message, as a provider's stream ends."""
    turn = sum(message["role"] == "assistant" for message in messages)
    for word in ("one", "two", "three"):
        yield f"{word} of turn {turn}"
    if turn < TURNS:
        yield asks((f"call_{turn}", "square", {"x": turn + 2}))
    else:
        yield says(json.dumps([block["content"] for m in messages[2::2] for block in m["content"]]))


async def call_model(session: Session) -> None:
    messages = session.state.messages()
    async with session.requesting({"model": "m", "messages": messages}) as asked:
        async for part in stream(messages):
            if isinstance(part, str):
                await asked.progress({"text": part})
                doom.reached(part)
            else:
                asked.response(part)


async def run_tool(session: Session, call: Call) -> None:
    async with session.calling(call, on_resume="rerun") as attempt:
        doom.effect(FOLDER, call.call_id)
        squaring = await asyncio.create_subprocess_exec(
            "expr", *_squared(attempt.arguments["x"]), stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await squaring.communicate()
        attempt.result(int(printed))


def _squared(x: int) -> list[str]:
    return [str(x), "*", str(x)]


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
