"""Whatever a harness records comes back as it was, in all shapes that grow large."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from flightlog import Log, RunTools, connect, context
from flightlog.session import Session
from flightlog.wire import payload as payloads
from tests.scripted import TENANT
from tests.sdk.tale import text, tool_use

SEED = random.Random(4)
SHAPES: dict[str, Any] = {
    "one text": "".join(SEED.choices('ab"\\\n☃💡\ud800', k=600_000)),
    "many texts": [f"{n} {SEED.random()}" for n in range(60_000)],
    "deep": json.loads('[{"a":' * 100 + '"x' * 1 + "y" * 2_000_000 + '"' + "}]" * 100),
    "blocks": [text(f"{n} " * 300) for n in range(2_000)],
    "odd blocks": [{"type": "x", "n": n, "of": [n] * 1_500} for n in range(250)],
    "keys": {f"key {n}": n for n in range(90_000)},
    "long keys": {f"{n}" * 150_000: [n] for n in range(6)},
    "bytes": {"type": "x", "raw": SEED.randbytes(2_000_000), "odd": {1: float("inf")}},
    "blanks": " \n" * 1_500_000,
    "numbers": [10**30, -0.5, None, True] * 40_000,
}

Record = Callable[[Session, Any], Any]


async def _asked(s: Session, shape: Any) -> Any:
    request = {"model": "m", "messages": [{"role": "user", "content": [text("x")], "more": shape}]}
    answer = {"role": "assistant", "content": [tool_use("a", "t", rows=shape), text("b")]}
    request["system"] = shape
    await s.model_call(request, call=lambda **_: answer)
    step = s.state.next
    assert isinstance(step, RunTools)
    assert step.calls[0].arguments == {"rows": shape}
    result = await s.tool_call(step.calls[0], run=lambda rows: rows)
    assert result.output == shape
    return request


async def _said(s: Session, shape: Any) -> None:
    await s.user_message(shape)
    await s.append("user_message", {"content": [text("first"), text("then")], "more": shape})


async def _kept(s: Session, shape: Any) -> None:
    await s.append("note", {"of the author": shape})
    await s.checkpoint(shape, label="c")
    assert await s.value("v", lambda: shape) == shape
    assert await s.hook("h", shape, run=lambda event: event) == shape
    assert (await s.tool_call("t", {"x": shape}, call_id="c", run=lambda x: x)).output == shape
    await s.compact(shape, keep_from=s.state.seq)


@pytest.mark.timeout(90)  # some 20 MB through a real broker, and as many values packed and read
@pytest.mark.parametrize("name", SHAPES)
async def test_every_event_holds_every_shape(nats_url: str, name: str) -> None:
    shape = SHAPES[name]
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await _said(s, shape)
            request = await _asked(s, shape)
            await _kept(s, shape)
            said, saved = s.state.messages(), s.state.saved
            await s.end(result=shape, error="why " * 500_000)
        assert saved == shape
        state = await log.state(s.id)
        assert (state.messages(), state.saved) == (said, saved)
        copy = await log.fork(s.id, at=state.seq - 1)
        assert (await log.state(copy)).messages() == said
        told = {event.type: await log.payload(event) async for event in log.read(s.id)}
        assert told["user_message"]["more"] == shape
        assert told["model_response"]["message"]["content"][0]["input"] == {"rows": shape}
        assert (told["tool_result"]["output"], told["value_recorded"]["value"]) == (shape, shape)
        assert (told["hook_decision"]["decision"], told["compact"]["summary"]) == (shape, shape)
        assert told["session_ended"]["result"] == shape
        assert told["session_ended"]["error"] == "why " * 500_000
        assert await _rebuilt(log, s.id) == request


async def _rebuilt(log: Log, session: str) -> Any:
    async for event in log.read(session):
        if event.type == "model_request":
            asked = payloads.decode(event.type, await log.whole(event))
            assert isinstance(asked, payloads.ModelRequest)
            assert asked.context is not None
            return context.rebuild(await log.state(session, at=asked.context.upto), asked)
    return None
