"""A small but real harness, a process of its own: `python -m flightlog_recorder.demo.harness`.

The same program starts a session and resumes it, and does not know which of the two it is doing.
"""

import asyncio
import sys
from pathlib import Path

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, Event, RunTools
from flightlog_recorder.demo import model
from flightlog_recorder.demo.tools import Tool, counted, tools_of
from flightlog_recorder.demo.workspace import Workspace, append_line

VERSION = "demo-1"


async def run(key: str, workspace: Workspace) -> None:
    """Open the session of `key` and work until nothing is owed."""
    tools = tools_of(workspace)

    def acked(event: Event) -> None:
        append_line(workspace.acks_file, f"{event.seq} {event.digest}")

    def tool_for(call: Call) -> Tool:
        return counted(workspace, tools[call.name], call.call_id)

    async with (
        flightlog.connect() as log,
        log.session(
            key=key, harness_version=VERSION, labels={"job": "demo"}, tools=tools, on_event=acked
        ) as s,
    ):
        await s.user_message(model.TASK, origin="schedule", once="task")
        while not isinstance(step := s.state.next, Ended | Decide | AwaitUser):
            match step:
                case CallModel():
                    messages = s.state.messages("anthropic")
                    request = {"model": model.NAME, "messages": messages, "tools": model.TOOLS}
                    await s.model_call({**request, "max_tokens": 1024}, call=model.create)
                case RunTools(calls):
                    await asyncio.gather(*(s.tool_call(c, run=tool_for(c)) for c in calls))
        if isinstance(step, AwaitUser):
            await s.end("completed", result=s.state.messages()[-1]["content"])


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Workspace(Path(sys.argv[2]))))
