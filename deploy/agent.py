"""A sample agent for `flightlog run`: it adds up the night's orders, region by region.

Delete its pod whenever you like: the next one resumes the same session and repeats nothing that was
recorded. The model is scripted and needs no key; yours is `client.messages.create`.
"""

import asyncio
import os
from typing import Any

import flightlog
from flightlog import AwaitUser, CallModel, Decide, Ended, RunTools

VERSION = "sample-1"
TASK = "Add up last night's orders, region by region."
REGIONS = ("north", "east", "south", "west")
PACE = float(os.environ.get("SAMPLE_PACE", "5"))  # seconds a count takes: time to delete the pod
TOOL = {"name": "count_orders", "description": "Count.", "input_schema": {"type": "object"}}

Message = dict[str, Any]


@flightlog.tool(on_resume="rerun", effect="read")
async def count_orders(region: str) -> int:
    """Count a region's orders, slowly."""
    await asyncio.sleep(PACE)
    return sum(map(ord, region))


async def create(*, messages: list[Message], **_: Any) -> Message:
    """Answer as a model would: one region a turn, then the sum."""
    counts = [
        int(block["content"])
        for message in messages
        if message["role"] == "user" and isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    content: Message = {"type": "text", "text": f"{sum(counts)} orders."}
    if more := REGIONS[len(counts) : len(counts) + 1]:
        call = {"id": f"call_{more[0]}", "name": TOOL["name"], "input": {"region": more[0]}}
        content = {"type": "tool_use", **call}
    return {
        "role": "assistant",
        "content": [content],
        "stop_reason": "tool_use" if more else "end_turn",
        "usage": {"input_tokens": len(messages), "output_tokens": 1},
    }


async def main() -> None:
    """Work until nothing is owed; `FLIGHTLOG_SESSION_KEY` names the session."""
    async with (
        flightlog.connect() as log,
        log.session(harness_version=VERSION, tools=[count_orders]) as s,
    ):
        await s.user_message(TASK, origin="schedule", once="task")
        while not isinstance(step := s.state.next, Ended | Decide | AwaitUser):
            match step:
                case CallModel():
                    request = {"model": "scripted", "max_tokens": 1024, "tools": [TOOL]}
                    messages = s.state.messages("anthropic")
                    await s.model_call({**request, "messages": messages}, call=create)
                case RunTools(calls):
                    await asyncio.gather(*(s.tool_call(c, run=count_orders) for c in calls))
        if isinstance(step, AwaitUser):
            await s.end("completed", result=s.state.messages()[-1]["content"])


if __name__ == "__main__":
    asyncio.run(main())
