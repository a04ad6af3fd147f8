"""A loop without asyncio: the model is called in the main thread, tools in a pool of threads.

`python -m tests.system.harnesses.threads KEY FOLDER`. The client of the model is a connection to
SQLite, which refuses to be used by another thread than its own.
"""

import json
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import flightlog
from flightlog import AwaitUser, Call, CallModel, Decide, Ended, RunTools, blocking
from tests.scripted import asks, says
from tests.system.harnesses import doom

FOLDER = Path(sys.argv[2])
TURNS = 3


class Client:
    """A model whose client belongs to the thread that made it."""

    def __init__(self) -> None:
        self._memory = sqlite3.connect(":memory:")

    def create(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        """Ask for three writes a turn, then add up what they gave."""
        self._memory.execute("select 1")
        turn = sum(message["role"] == "assistant" for message in messages)
        if turn < TURNS:
            return asks(*((f"call_{turn}_{n}", "write", {"n": n}) for n in range(3)))
        given = [block["content"] for m in messages[2::2] for block in m["content"]]
        return says(json.dumps(given))


def run_tool(session: blocking.Session, call: Call) -> None:
    @flightlog.tool(on_resume="rerun")
    def write(n: int) -> str:
        doom.effect(FOLDER, call.call_id)
        return f"wrote {n}"

    session.tool_call(call, run=write)


def main() -> None:
    client = Client()
    with (
        ThreadPoolExecutor(3) as pool,
        blocking.connect() as log,
        log.session(key=sys.argv[1], on_event=doom.acked) as session,
    ):
        session.user_message("go", once="task")
        while not isinstance(step := session.state.next, Ended | Decide | AwaitUser):
            match step:
                case CallModel():
                    request = {"model": "m", "messages": session.state.messages()}
                    session.model_call(request, call=client.create)
                case RunTools(calls):
                    list(pool.map(lambda call: run_tool(session, call), calls))
        if isinstance(step, AwaitUser):
            session.end(result=session.state.messages()[-1])


if __name__ == "__main__":
    main()
