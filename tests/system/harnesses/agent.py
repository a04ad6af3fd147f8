"""A small agent: one turn of tools that leave a line in a file, then a last word.

`agent.py KEY FOLDER [--one-by-one]`. FOLDER/plan.json lists the calls as [id, name, arguments].
Each run of a tool is a line in FOLDER/runs; a call whose name is a file FOLDER/hold.NAME hangs.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Session

FOLDER = Path(sys.argv[2])


@flightlog.tool(on_resume="rerun", effect="read")
async def look(call: Call) -> str:
    return await _run(call)


@flightlog.tool(on_resume="fail")
async def send(call: Call) -> str:
    return await _run(call)


@flightlog.tool(on_resume="ask")
async def pay(call: Call) -> str:
    return await _run(call)


async def undeclared(call: Call) -> str:
    return await _run(call)


TOOLS = {"look": look, "send": send, "pay": pay, "undeclared": undeclared}


async def _run(call: Call) -> str:
    line = {"id": call.call_id, "key": call.idempotency_key, "attempt": call.attempt}
    with (FOLDER / "runs").open("a") as runs:
        runs.write(json.dumps(line | {"arguments": call.arguments}) + "\n")
    if (FOLDER / f"hold.{call.call_id}").exists():
        await asyncio.Event().wait()
    return f"{call.call_id} ran"


def model(**request: Any) -> dict[str, Any]:
    """Asks for the whole plan first, then says what it got."""
    if request["messages"][-1]["content"] == "go":
        plan = json.loads((FOLDER / "plan.json").read_text())
        calls = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in plan]
        return {"role": "assistant", "content": calls, "stop_reason": "tool_use"}
    said = json.dumps(request["messages"][-1]["content"])
    return {"role": "assistant", "content": [{"type": "text", "text": said}]}


async def run_one(session: Session, call: Call) -> None:
    tool = TOOLS[call.name]
    policy = flightlog.tool(**_declared(tool))

    async def work(**_: Any) -> str:
        return await tool(call)

    await session.tool_call(call, run=policy(work))


def _declared(tool: Any) -> dict[str, Any]:
    declared = getattr(tool, "__flightlog_policy__", None)
    return {} if declared is None else {"on_resume": declared.on_resume, "effect": declared.effect}


async def loop(session: Session) -> None:
    await session.user_message("go", once="task")
    while not isinstance(step := session.state.next, Ended | Decide | AwaitUser):
        match step:
            case CallModel():
                request = {"model": "m", "messages": session.state.messages()}
                await session.model_call(request, call=model)
            case RunTools(calls) if "--one-by-one" in sys.argv:
                await run_one(session, calls[0])
            case RunTools(calls):
                await asyncio.gather(*(run_one(session, call) for call in calls))
    if isinstance(step, AwaitUser):
        await session.end()


async def main() -> None:
    async with flightlog.connect() as log, log.session(key=sys.argv[1]) as session:
        await loop(session)


if __name__ == "__main__":
    asyncio.run(main())
