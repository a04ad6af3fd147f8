"""A recorded session whose model is OpenAI's, and one that changes its provider on the way."""

from typing import Any

from flightlog import CallModel, RunTools, Session, connect, context
from flightlog import state as states
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ModelRequest
from tests.scripted import TENANT, Model
from tests.sdk.tale import chat, function_call, text

SYSTEM = {"role": "system", "content": "be kind"}


def hide(leaf: str) -> str:
    return leaf.replace("hunter2", "***")


async def ask(s: Session, model: Model, **options: Any) -> Any:
    request = {"model": "m", "messages": [SYSTEM, *s.state.messages("openai-chat")]}
    return await s.model_call(request, call=model, provider="openai-chat", **options)


async def test_an_openai_session_is_resumed_and_goes_on_with_anthropic(nats_url: str) -> None:
    calls = [function_call("a", "ls", '{"path":"/"}'), function_call("b", "ls", '{"path":"/tmp"}')]
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    response = {**chat(None, *calls, finish="tool_calls"), "usage": usage}
    claude = Model({"role": "assistant", "content": [text("done")], "stop_reason": "end_turn"})
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("look")
            assert await ask(s, Model(response)) == response
            step = s.state.next
            assert isinstance(step, RunTools)
            await s.tool_call(step.calls[0], run=lambda path: f"{path}: etc", on_resume="fail")
        async with log.session(key="k") as s:
            step = s.state.next
            assert isinstance(step, RunTools)
            [call] = step.calls
            assert (call.call_id, call.arguments) == ("b", {"path": "/tmp"})
            await s.tool_call(call, run=lambda path: f"{path}: empty")
            assert s.state.next == CallModel()
            request = {"model": "c", "messages": s.state.messages("anthropic")}
            await s.model_call(request, call=claude, provider="anthropic")
            assert s.state.usage.input_tokens == 10
            assert s.state.messages() == s.state.messages("anthropic")
        await assert_rebuilt(log, s.id)
    [sent] = claude.requests
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"] * 2
    assert [b["content"] for b in sent["messages"][2]["content"]] == ["/: etc", "/tmp: empty"]


async def assert_rebuilt(log: Any, session: str) -> None:
    """Every request comes back exactly, as its digest proves."""
    before, count = [states.initial()], 0
    async for event in log.read(session):
        asked = payloads.decode(event.type, event.raw)
        if isinstance(asked, ModelRequest) and asked.context is not None:
            context.rebuild(before[asked.context.upto], asked)
            count += 1
        before.append(states.apply(before[-1], event))
    assert count == 2


async def test_a_redacted_call_of_an_openai_model_runs_with_its_own_arguments(
    nats_url: str,
) -> None:
    ran = list[str]()

    def login(password: str) -> None:
        ran.append(password)

    response = chat(None, function_call("a", "login", '{"password":"hunter2"}'))
    async with connect(nats=nats_url, tenant=TENANT, redact=hide) as log, log.session() as s:
        await s.user_message("log in")
        message = await ask(s, Model(response))
        assert "hunter2" not in str(message)
        step = s.state.next
        assert isinstance(step, RunTools)
        await s.tool_call(step.calls[0], run=login)
        bodies = [event.body async for event in log.read(s.id)]
    assert ran == ["hunter2"]
    assert not any(b"hunter2" in body for body in bodies)


async def test_without_a_name_a_request_is_for_the_provider_of_the_last_one(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        await ask(s, Model(chat("hello")))
        await s.user_message("and?")
        request = {"model": "m", "messages": s.state.messages()}
        await s.model_call(request, call=Model(chat("so")))
        assert s.state.messages()[-1] == {"role": "assistant", "content": "so"}
