"""A tool call: recorded before it runs, closed however it ends, never run twice."""

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flightlog import (
    CallRefused,
    Event,
    Fenced,
    InvalidValue,
    Log,
    NeedsDecision,
    Result,
    RunTools,
    Session,
    Suspended,
    connect,
    tool,
)
from flightlog_recorder.embedded import Server
from tests.scripted import TENANT, Model, asks, payloads, says, types, until


async def turn(session: Session, *script: dict[str, Any] | Exception) -> None:
    """One model call for each line of the script."""
    model = Model(*script)
    for _ in script:
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)


def due(session: Session) -> RunTools:
    """The calls that the model announced."""
    step = session.state.next
    assert isinstance(step, RunTools)
    return step


async def test_a_result_is_what_was_recorded_the_first_time_too(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            made = {"pair": (1, 2), "raw": b"\xff", "nan": float("-inf")}
            first = await s.tool_call("t", {"x": 1}, call_id="c", run=lambda x: made | {"x": x})
        async with log.session(key="k") as s:
            again = await s.tool_call("t", {"x": 1}, call_id="c", run=pytest.fail)
    expected = {"pair": [1, 2], "raw": b"\xff", "nan": float("-inf"), "x": 1}
    assert first == again == Result("ok", expected)


async def test_sync_tools_run_in_a_thread_and_async_ones_in_the_loop(nats_url: str) -> None:
    async def here() -> int:
        return threading.get_ident()

    class Client:
        def call(self) -> Any:
            return here()

        async def __call__(self) -> int:
            return threading.get_ident()

    mine = threading.get_ident()
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        tools: list[Callable[..., Any]] = [
            threading.get_ident,
            here,
            functools.partial(here),
            Client().call,
            Client(),
        ]
        ran_in = [
            (await s.tool_call("t", call_id=str(n), run=run)).output for n, run in enumerate(tools)
        ]
    assert ran_in[0] != mine
    assert ran_in[1:] == [mine] * 4


async def test_one_failing_call_of_a_gather_leaves_the_others_their_results(nats_url: str) -> None:
    def work(n: int) -> int:
        if n == 1:
            raise ValueError("one is not for me")
        return n

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await turn(s, asks(*((f"c{n}", "work", {"n": n}) for n in range(4))))
        results = await asyncio.gather(*(s.tool_call(c, run=work) for c in due(s).calls))
        await turn(s, says("thanks"))
        recorded = await payloads(log, s.id, "tool_result")
    failure = {"error": "ValueError", "message": "one is not for me"}
    assert [r.output for r in results] == [0, failure, 2, 3]
    assert [r.ok for r in results] == [True, False, True, True]
    assert sorted(p.get("outcome", "ok") for p in recorded) == ["error", "ok", "ok", "ok"]
    assert all(p["duration"] >= 0 for p in recorded)


async def test_a_call_that_is_being_run_is_not_run_by_another_task(nats_url: str) -> None:
    runs: list[int] = []

    async def work() -> str:
        runs.append(1)
        await asyncio.sleep(0.05)
        return "done"

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await turn(s, asks(("c", "work", {})))
        (call,) = due(s).calls
        done = await asyncio.gather(
            *(s.tool_call(call, run=work) for _ in range(5)), return_exceptions=True
        )
        assert sum(isinstance(each, CallRefused) for each in done) == 4
        assert await s.tool_call(call, run=work) == Result("ok", "done")
        assert (await types(log, s.id)).count("tool_call") == 1
    assert runs == [1]


async def test_the_two_step_form_records_what_it_is_told(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        async with s.calling("t", {"x": 1}, call_id="a") as call:
            assert call.arguments == {"x": 1}
            call.result([1])
        async with s.calling("t", call_id="b") as call:
            call.error(ValueError("no"))
        async with s.calling("t", call_id="c"):
            pass
        with pytest.raises(KeyError):
            async with s.calling("t", call_id="d"):
                raise KeyError("k")
        recorded = [
            (r["call_id"], r.get("outcome"), r["output"])
            for r in await payloads(log, s.id, "tool_result")
        ]
    assert recorded == [
        ("a", None, [1]),
        ("b", "error", {"error": "ValueError", "message": "no"}),
        ("c", "error", {"error": "NoResult"}),
        ("d", "error", {"error": "KeyError", "message": "'k'"}),
    ]


async def test_the_two_step_form_refuses_a_call_that_has_its_result(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        early = s.calling("t", call_id="a")
        async with s.calling("t", call_id="a") as call:
            call.result(1)
        with pytest.raises(CallRefused):
            async with early:
                pytest.fail("it must not be entered")
        assert (await types(log, s.id)).count("tool_call") == 1


async def test_the_two_step_form_says_when_its_result_was_not_recorded(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            with pytest.raises(Fenced):
                async with s.calling("t", call_id="a") as call:
                    async with log.session(key="k"):
                        pass
                    with pytest.raises(Fenced):
                        await s.append("note", 1)
                    call.result("mine")
        async with log.session(key="k") as s:
            with pytest.raises(Suspended):
                async with s.calling("t", call_id="b") as call:
                    await s.suspend()
                    call.result("mine")


async def test_a_timeout_around_a_call_closes_it_as_cancelled(nats_url: str) -> None:
    async def slow() -> None:
        await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await turn(s, asks(("c", "slow", {})))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await s.tool_call(due(s).calls[0], run=slow)
        (result,) = await payloads(log, s.id, "tool_result")
        assert result["outcome"] == "cancelled"
        assert "unknown" in result["output"]
        await turn(s, says("what a pity"))


async def test_a_cancelled_tool_that_cleans_up_is_waited_for(nats_url: str) -> None:
    cleaned: list[bool] = []
    started = asyncio.Event()

    async def tidy() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        running = asyncio.create_task(s.tool_call("tidy", call_id="c", run=tidy))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cleaned == [True]


async def test_a_call_that_is_cancelled_while_it_is_announced_to_the_log_is_closed(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        nats_server.pause()
        running = asyncio.create_task(s.tool_call("t", call_id="c", run=pytest.fail))
        await asyncio.sleep(0.05)
        running.cancel()
        nats_server.resume()
        with pytest.raises(asyncio.CancelledError):
            await running
        (result,) = await payloads(log, s.id, "tool_result")
        assert result["outcome"] == "cancelled"
        assert s.state.call(None, "c") is not None


async def test_a_call_that_is_cancelled_while_its_result_is_stored_keeps_its_result(
    nats_server: Server,
) -> None:
    async def work() -> int:
        nats_server.pause()
        ahead.append(asyncio.create_task(s.append("note", "so that the result is not sent yet")))
        await asyncio.sleep(0)
        return 7

    ahead: list[asyncio.Task[Event]] = []
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        running = asyncio.create_task(s.tool_call("t", call_id="c", run=work))
        await until(lambda: s.state.seq == 2 and not s._journal._running)
        await asyncio.sleep(0.05)
        running.cancel()
        nats_server.resume()
        with pytest.raises(asyncio.CancelledError):
            await running
        known = s.state.call(None, "c")
        assert known is not None
        assert known.phase == "done"
        assert [r["output"] for r in await payloads(log, s.id, "tool_result")] == [7]


async def test_a_call_that_no_model_announced_needs_an_id_of_its_own(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises(CallRefused, match="needs a call_id"):
            await s.tool_call("t", {}, run=pytest.fail)
        await s.tool_call("t", {"x": 1}, call_id="c", run=lambda x: x)
        assert (await s.tool_call("t", {"x": 1}, call_id="c", run=pytest.fail)).output == 1
        for name, arguments in (("t", {"x": 2}), ("u", {"x": 1})):
            with pytest.raises(CallRefused, match="was used for another call"):
                await s.tool_call(name, arguments, call_id="c", run=pytest.fail)


async def test_a_call_of_an_earlier_turn_is_refused(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await turn(s, asks(("c", "t", {})))
        (old,) = due(s).calls
        await s.tool_call(old, run=lambda: 1)
        await turn(s, says("next"))
        with pytest.raises(CallRefused, match="earlier turn"):
            await s.tool_call(old, run=pytest.fail)


async def test_a_server_that_repeats_its_ids_gets_each_turn_its_own_result(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        outputs: list[Any] = []
        for n in range(3):
            await turn(s, asks(("call_0", "t", {"n": n}), ("call_0", "t", {"n": n + 10})))
            calls = due(s).calls
            assert len({call.idempotency_key for call in calls}) == 2
            outputs += [(await s.tool_call(c, run=lambda n: n)).output for c in calls]
    assert outputs == [0, 10, 1, 11, 2, 12]


async def test_the_policy_of_the_call_site_beats_the_tool_and_the_session(nats_url: str) -> None:
    @tool(on_resume="rerun", effect="read")
    def declared() -> int:
        return 1

    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(tools={"listed": tool(on_resume="fail")(lambda: 2)}) as s:
            await s.tool_call("listed", call_id="1", run=lambda: 2)
            await s.tool_call("listed", call_id="2", run=declared)
            await s.tool_call("listed", call_id="3", run=declared, on_resume="ask", effect="write")
            await s.tool_call("other", call_id="4", run=lambda: 2)
        policies = [
            (call.get("on_resume", "ask"), call.get("effect", "write"))
            for call in await payloads(log, s.id, "tool_call")
        ]
    assert policies == [("fail", "write"), ("rerun", "read"), ("ask", "write"), ("ask", "write")]


MANY = [{"type": "x", "text": "x"}] * 100_000  # blocks that are no text stay in their event


@pytest.mark.parametrize("output", [MANY, object()], ids=["too large", "no JSON form"])
async def test_an_output_that_cannot_be_recorded_is_an_error_for_the_model(
    nats_url: str, output: Any
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await turn(s, asks(("c", "t", {})))
        result = await s.tool_call(due(s).calls[0], run=lambda: output)
        assert not result.ok
        assert result.output["error"] in ("TooLarge", "InvalidValue")
        await turn(s, says("I see"))


async def test_arguments_that_cannot_be_recorded_are_refused_before_anything_runs(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises(InvalidValue):
            await s.tool_call("t", {"x": object()}, call_id="c", run=pytest.fail)
        assert (await s.tool_call("t", {"x": 1}, call_id="c", run=lambda x: x)).ok
        assert await types(log, s.id) == ["session_started", "tool_call", "tool_result"]


async def test_a_call_that_waits_for_a_person_is_never_run(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        await _die_inside(log, "k")
        async with log.session(key="k") as s:
            with pytest.raises(NeedsDecision, match=f"flightlog resolve {s.id} c "):
                await s.tool_call("t", {}, call_id="c", run=pytest.fail)
            with pytest.raises(NeedsDecision):
                async with s.calling("t", {}, call_id="c"):
                    pytest.fail("it must not be entered")


async def test_a_sync_tool_does_not_hold_up_a_suspension(nats_url: str) -> None:
    started, release = threading.Event(), threading.Event()

    def stubborn() -> str:
        started.set()
        release.wait(10)
        return "too late"

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        running = asyncio.create_task(s.tool_call("t", call_id="c", run=stubborn))
        await until(started.is_set)
        await s.suspend()
        with pytest.raises(Suspended):
            await running
        release.set()
        assert await types(log, s.id) == ["session_started", "tool_call", "session_suspended"]


async def _die_inside(log: Log, key: str) -> None:
    """Leave a call in flight, as a process that is killed in the middle of it does."""
    async with log.session(key=key) as s:
        started = asyncio.Event()

        async def endless() -> None:
            started.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(s.tool_call("t", {}, call_id="c", run=endless))
        await started.wait()
    with pytest.raises(Suspended):
        await running


async def test_a_start_whose_caller_is_gone_is_under_way_until_its_fate_is_known(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url) as log, log.session() as session:
        nats_server.pause()
        calling = asyncio.create_task(session.tool_call("t", {}, call_id="c", run=lambda: 1))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        with pytest.raises(CallRefused, match="is being started"):
            await session.tool_call("t", {}, call_id="c", run=lambda: 1)
        nats_server.resume()
        await until(lambda: (call := session.state.call(None, "c")) and call.phase == "done")
        found = await session.tool_call("t", {}, call_id="c", run=lambda: 1)
        assert found.outcome == "cancelled"


class Speechless(Exception):
    """An exception of which nobody can have the text."""

    def __str__(self) -> str:
        raise RecursionError("in its own words")


async def test_an_exception_without_a_text_is_a_result_too(nats_url: str) -> None:
    def fail() -> None:
        raise Speechless

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        result = await s.tool_call("t", {}, run=fail, call_id="c")
        assert (result.outcome, result.output["error"]) == ("error", "Speechless")
        assert "cannot be had (RecursionError)" in result.output["message"]
        with pytest.raises(Speechless):
            async with s.calling("t", {}, call_id="d"):
                fail()
        assert [each["outcome"] for each in await payloads(log, s.id, "tool_result")] == [
            "error",
            "error",
        ]
