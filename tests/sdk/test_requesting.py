"""A model call: its request stored by reference, its answer or its error recorded."""

import asyncio
import threading
from typing import Any

import pytest

from flightlog import (
    AwaitUser,
    CallModel,
    CallRefused,
    Event,
    Fenced,
    InvalidValue,
    Session,
    TooLarge,
    connect,
    context,
)
from flightlog.wire import payload as tables
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, Model, asks, owed, payloads, says, stored, types, until


def ask(session: Session, **more: Any) -> dict[str, Any]:
    """The request that a harness makes of the whole context."""
    return {"model": "m", "max_tokens": 9, "messages": session.state.messages()} | more


async def test_a_model_call_records_its_request_and_returns_its_message(nats_url: str) -> None:
    model = Model(says("hello", input_tokens=3))
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        message = await s.model_call(ask(s), call=model)
        assert message == says("hello", input_tokens=3)
        assert s.state.usage.input_tokens == 3
        assert owed(s) == AwaitUser()
        (response,) = await payloads(log, s.id, "model_response")
    assert response["message"] == message
    assert response["stop"] == "end_turn"
    assert model.requests == [
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    ]


async def test_a_sync_model_runs_in_a_thread(nats_url: str) -> None:
    ran_in: list[int] = []

    def model(**_: Any) -> Any:
        ran_in.append(threading.get_ident())
        return says("hello")

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.model_call(ask(s), call=model)
    assert ran_in[0] != threading.get_ident()


async def test_the_error_of_a_model_is_recorded_by_name_and_raised(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        with pytest.raises(ConnectionError):
            await s.model_call(ask(s), call=Model(ConnectionError("key sk-123 refused")))
        assert await payloads(log, s.id, "model_response") == [{"error": "ConnectionError"}]
        assert owed(s) == CallModel()
        await s.model_call(ask(s), call=Model(says("hello")))
        assert owed(s) == AwaitUser()


async def test_a_second_open_main_call_is_refused(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        async with s.requesting(ask(s)) as open_call:
            with pytest.raises(CallRefused, match="open already"):
                await s.model_call(ask(s), call=pytest.fail)
            title = await s.model_call(ask(s), call=Model(says("A title")), purpose="side")
            assert title["content"][0]["text"] == "A title"
            open_call.response(says("main"))
        done = await asyncio.gather(
            *(s.model_call(ask(s), call=Model(says("x"))) for _ in range(5)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, CallRefused) for each in done) == 4
        assert (await types(log, s.id)).count("model_request") == 3


async def test_a_side_call_never_enters_the_context(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        request = {"model": "small", "messages": [{"role": "user", "content": "title?"}]}
        await s.model_call(request, call=Model(says("A title")), purpose="side")
        assert s.state.messages() == [{"role": "user", "content": "hi"}]
        assert owed(s) == CallModel()


async def test_a_streamed_answer_goes_through_the_two_step_form(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        async with s.requesting(ask(s)) as call:
            for chunk in ("hel", "lo"):
                await call.progress({"delta": chunk})
            call.response(says("hello"))
        assert call.message == says("hello")
        assert (await types(log, s.id))[2:] == ["model_request", "model_response"]


async def test_a_stream_that_never_answers_is_closed_as_an_error(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        async with s.requesting(ask(s)):
            pass
        assert await payloads(log, s.id, "model_response") == [{"error": "NoResponse"}]
        assert owed(s) == CallModel()


async def test_a_cancelled_model_call_is_closed_and_can_be_made_again(nats_url: str) -> None:
    async def slow(**_: Any) -> None:
        await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await s.model_call(ask(s), call=slow)
        assert await payloads(log, s.id, "model_response") == [{"error": "CancelledError"}]
        await s.model_call(ask(s), call=Model(says("hello")))


async def test_a_model_call_that_is_cancelled_while_it_is_announced_is_closed(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("hi")
        nats_server.pause()
        asking = asyncio.create_task(s.model_call(ask(s), call=pytest.fail))
        await asyncio.sleep(0.05)
        asking.cancel()
        nats_server.resume()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await s.model_call(ask(s), call=Model(says("hello")))
        recorded = await types(log, s.id)
    assert recorded[2:] == ["model_request", "model_response"] * 2


async def test_an_answer_that_is_here_is_stored_although_its_caller_is_cancelled(
    nats_server: Server,
) -> None:
    async def model(**_: Any) -> Any:
        nats_server.pause()
        ahead.append(asyncio.create_task(s.append("note", "so that the answer is not sent yet")))
        await asyncio.sleep(0)
        return says("expensive")

    ahead: list[asyncio.Task[Event]] = []
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        asking = asyncio.create_task(s.model_call(ask(s), call=model))
        await until(lambda: s.state.seq == 2 and not s._journal._running)
        await asyncio.sleep(0.05)
        again = asyncio.create_task(s.model_call(ask(s), call=pytest.fail))
        asking.cancel()
        nats_server.resume()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert owed(s) == AwaitUser(), "the model would be asked again"
        with pytest.raises(CallRefused, match="answered meanwhile"):
            await again
        (response,) = await payloads(log, s.id, "model_response")
    assert response["message"] == says("expensive")


async def test_the_stream_is_told_when_its_answer_was_not_recorded(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session(key="k") as s:
        with pytest.raises(Fenced):
            async with s.requesting(ask(s)) as call:
                async with log.session(key="k"):
                    pass
                with pytest.raises(Fenced):
                    await s.append("note", 1)
                call.response(says("mine"))


async def test_a_model_call_in_flight_at_the_crash_is_made_again(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("hi")
            call = s.requesting(ask(s))
            await call.__aenter__()
        async with log.session(key="k") as s:
            assert owed(s) == CallModel()
            await s.model_call(ask(s), call=Model(says("hello")))
            assert owed(s) == AwaitUser()


async def test_a_request_that_is_too_large_is_refused_and_the_session_goes_on(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        big = ask(s, model="x" * (2 << 20))
        with pytest.raises(TooLarge, match="model_request") as refused:
            await s.model_call(big, call=pytest.fail)
        assert refused.value.size > refused.value.limit
        with pytest.raises(InvalidValue):
            await s.model_call(ask(s, tools=object()), call=pytest.fail)
        await s.model_call(ask(s), call=Model(says("hello")))
        assert (await types(log, s.id))[1:] == ["model_request", "model_response"]


MANY = {"content": [{"type": "x", "text": "x"}] * 100_000}  # blocks that are no text stay


@pytest.mark.parametrize("message", [MANY, object()], ids=["too large", "no JSON form"])
async def test_an_answer_that_cannot_be_recorded_is_an_error_that_is(
    nats_url: str, message: Any
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises((TooLarge, InvalidValue)):
            await s.model_call(ask(s), call=lambda **_: message)
        (response,) = await payloads(log, s.id, "model_response")
        assert response["error"] in ("TooLarge", "InvalidValue")
        await s.model_call(ask(s), call=Model(says("hello")))


async def test_a_hundred_turns_of_a_whole_context_are_stored_once(nats_url: str) -> None:
    """And each request can be made again, to the byte, from the log alone."""
    tools = [{"name": "t", "input_schema": {"type": "object", "description": "y" * 2_000}}]
    system = "You are a careful agent. " * 100
    sent: list[dict[str, Any]] = []

    async def model(**request: Any) -> Any:
        sent.append(request)
        return asks((f"c{len(sent)}", "t", {"n": len(sent), "text": "z" * 400}))

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.user_message("go " * 500)
        for _ in range(100):
            await s.model_call(ask(s, system=system, tools=tools), call=model)
            call = s.state.next.calls[0]  # type: ignore[union-attr]
            await s.tool_call(call, run=lambda n, text: f"{n}: {text}")
        events = await stored(log, s.id)
        requests = [event for event in events if event.type == "model_request"]
        whole = len(str(sent[-1]))
        assert sum(len(event.body) for event in requests) < whole + 100 * 700
        assert sum(len(event.body) for event in events) < 4 * whole
        for event, request in zip(requests[::9], sent[::9], strict=True):
            asked = tables.decode("model_request", event.raw)
            assert isinstance(asked, tables.ModelRequest)
            assert asked.context is not None
            state = await log.state(s.id, at=asked.context.upto)
            assert context.rebuild(state, asked) == request
