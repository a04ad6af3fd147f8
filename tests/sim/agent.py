"""A harness that runs an agent: the loop of DESIGN section 10, with a model and tools that fail."""

import asyncio
from contextlib import suppress
from typing import Any, Literal

from flightlog.errors import CallRefused
from flightlog.session import Session
from flightlog.step import AwaitUser, Call, CallModel, Decide, Ended, RunTools, Step
from tests.sim.harness import Harness

_POLICIES: dict[str, Literal["rerun", "fail", "ask"]] = {
    "read": "rerun",
    "post": "fail",
    "pay": "ask",
}


class Agent(Harness):
    """Calls the model, runs its tools, waits for decisions, for a few steps."""

    async def work(self, s: Session) -> None:
        await s.user_message("do it", once="task")
        for _ in range(self.rng.choice((2, 5, 12))):
            step = s.state.next
            if self.world.over or isinstance(step, Ended):
                return
            await self._take(s, step)
        if self.rng.random() < 0.3:
            await s.suspend()

    async def _take(self, s: Session, step: Step) -> None:
        match step:
            case CallModel():
                await self._ask_model(s)
            case RunTools(calls) if calls:
                await self.all(self._run_tool(s, call) for call in calls)
            case Decide() | RunTools():
                await s.wait(self.rng.choice((0.1, 2.0, 30.0)))
            case AwaitUser() if self.rng.random() < 0.3:
                await s.end()
            case _:
                await s.user_message("and then?")

    async def _ask_model(self, s: Session) -> None:
        request = {"model": "m", "max_tokens": 9, "messages": s.state.messages("anthropic")}

        async def model(**_: Any) -> dict[str, Any]:
            await asyncio.sleep(self.a_while())
            if self.rng.random() < 0.1:
                raise OSError("overloaded")
            return self._reply()

        with suppress(OSError, TimeoutError, CallRefused):
            async with asyncio.timeout(self._patience()):
                await s.model_call(request, call=model)

    def _reply(self) -> dict[str, Any]:
        """Some calls, whose ids are the same in each turn, as some servers have it."""
        names = [self.rng.choice(list(_POLICIES)) for _ in range(self.rng.choice((0, 1, 1, 2, 3)))]
        uses = [
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": {"n": n}}
            for n, name in enumerate(names)
        ]
        return {
            "role": "assistant",
            "content": [{"type": "text", "text": "well"}, *uses],
            "stop_reason": "tool_use" if uses else "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    async def _run_tool(self, s: Session, call: Call) -> None:
        async def run(**_: Any) -> dict[str, Any]:
            self.ran(s.id, call.announced_by, call.call_id)
            await asyncio.sleep(self.a_while())
            if self.rng.random() < 0.1:
                raise ValueError("no such thing")
            return {"n": call.call_id}

        async with asyncio.timeout(self._patience()):
            await s.tool_call(call, run=run, on_resume=_POLICIES[call.name])

    def _patience(self) -> float | None:
        return self.rng.random() if self.rng.random() < 0.05 else None
