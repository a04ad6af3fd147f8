"""What a harness holds while it runs an agent: recorded calls, values, endings."""

import asyncio
import time
from typing import Any

import pytest

import flightlog
from flightlog import (
    AwaitUser,
    CallModel,
    CallRefused,
    EffectFailed,
    Ended,
    Event,
    InvalidValue,
    RunTools,
    Session,
    SessionEnded,
    Suspended,
    TooLarge,
    connect,
)
from flightlog.bus.nats_bus import connect_bus
from flightlog_recorder.embedded import Server
from tests.scripted import (
    TENANT,
    Model,
    asks,
    chain_is_whole,
    owed,
    payloads,
    says,
    stored,
    types,
    until,
)


async def agent(session: Session, model: Model, tools: dict[str, Any]) -> None:
    """The loop of DESIGN section 10."""
    await session.user_message("do it", origin="schedule", once="task")
    while True:
        match session.state.next:
            case CallModel():
                request = {"model": "m", "messages": session.state.messages("anthropic")}
                await session.model_call(request, call=model)
            case RunTools(calls):
                run = [session.tool_call(call, run=tools[call.name]) for call in calls]
                await asyncio.gather(*run)
            case _:
                return


async def test_the_same_code_starts_a_session_and_resumes_it(nats_url: str) -> None:
    first = Model(asks(("a", "add", {"x": 1})), RuntimeError("the provider is down"))
    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(RuntimeError):
            async with log.session(key="job") as s:
                await agent(s, first, {"add": lambda x: x + 1})
        second = Model(says("done"))
        async with log.session(key="job") as s:
            await agent(s, second, {})
            assert owed(s) == AwaitUser()
            await s.end("completed", result={"ok": True})
        events = await stored(log, s.id)

    assert [event.type for event in events] == [
        "session_started",
        "user_message",
        "model_request",
        "model_response",
        "tool_call",
        "tool_result",
        "model_request",
        "model_response",
        "session_suspended",
        "session_resumed",
        "model_request",
        "model_response",
        "session_ended",
    ]
    assert chain_is_whole(events)
    assert [m["role"] for m in second.requests[0]["messages"]] == ["user", "assistant", "user"]


async def test_results_and_responses_name_what_they_answer(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await agent(s, Model(asks(("a", "add", {}), ("b", "add", {})), says("done")), {"add": int})
        events = await stored(log, s.id)
    at = {event.seq: event for event in events}
    for event in events:
        if event.type in ("tool_result", "model_response"):
            assert event.parent_seq is not None
            asked = at[event.parent_seq]
            assert (
                asked.type
                == {"tool_result": "tool_call", "model_response": "model_request"}[event.type]
            )
            assert asked.payload.get("call_id") == event.payload.get("call_id")
        else:
            assert event.parent_seq == (event.seq - 1 or None)


async def test_leaving_the_block_without_an_end_suspends(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            pass
        assert await payloads(log, s.id, "session_suspended") == [{}]
        assert (await log.state(s.id)).status == "suspended"
        assert (await log.state(s.id)).reason == "closed"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
async def test_leaving_by_an_error_says_which_and_raises_it(
    nats_url: str, error: type[BaseException]
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        s = None
        with pytest.raises(error):
            async with log.session() as s:
                raise error
        assert s is not None
        assert (await log.state(s.id)).reason == error.__name__


async def test_leaving_by_a_cancellation_suspends_and_stays_a_cancellation(nats_url: str) -> None:
    opened = asyncio.Event()
    ids: list[str] = []

    async def harness() -> None:
        async with log.session() as s:
            ids.append(s.id)
            opened.set()
            await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log:
        task = asyncio.create_task(harness())
        await opened.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await log.state(ids[0])).reason == "CancelledError"


async def test_a_cancellation_while_the_block_is_left_is_not_swallowed(nats_server: Server) -> None:
    opened: list[Session] = []

    async def harness() -> None:
        async with log.session() as s:
            opened.append(s)
            nats_server.pause()

    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        task = asyncio.create_task(harness())
        await until(lambda: opened and opened[0]._journal.stopped)
        task.cancel()
        nats_server.resume()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await log.state(opened[0].id)).status == "suspended"


@pytest.mark.timeout(30)  # leaving may take 5 s, and the connection as long to close
async def test_leaving_without_a_bus_takes_five_seconds_and_keeps_the_error(
    nats_server: Server,
) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log:
        began = time.monotonic()
        with pytest.raises(ValueError, match="of the harness"):
            async with log.session():
                nats_server.kill()
                began = time.monotonic()
                raise ValueError("of the harness")
        assert time.monotonic() - began < 6.5


async def test_an_ended_session_opens_as_ended_and_takes_nothing(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="job") as s:
            await s.value("n", lambda: 7)
            await s.end("failed", error="no more")
        before = await types(log, s.id)
        async with log.session(key="job") as again:
            assert owed(again) == Ended("failed")
            assert again.state.reason == "no more"
            assert await again.value("n", lambda: 8) == 7
            assert not await again.wait()
            with pytest.raises(SessionEnded):
                await again.user_message("hello?")
            with pytest.raises(SessionEnded):
                await again.end()
            await again.suspend()
        assert await types(log, s.id) == before


async def test_reopen_goes_on_with_an_ended_session(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="job") as s:
            await s.end()
        async with log.session(key="job", reopen=True) as again:
            assert again.id == s.id
            await again.user_message("one more thing")
            assert owed(again) == CallModel()
            assert again.state.writer == 2
        assert "session_reopened" in await types(log, s.id)


async def test_nothing_is_stored_behind_the_end(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            late = [s.append("note", n) for n in range(5)]
            done = await asyncio.gather(s.end(), *late, s.end(), return_exceptions=True)
        assert [type(each) for each in done[1:]] == [SessionEnded] * 6
        assert (await types(log, s.id))[-1] == "session_ended"


async def test_an_end_stops_the_tools_that_still_run(nats_url: str) -> None:
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        running = asyncio.create_task(s.tool_call("slow", call_id="c", run=slow))
        await started.wait()
        await s.end("cancelled")
        with pytest.raises(SessionEnded):
            await running


async def test_an_end_that_is_too_large_is_refused_and_the_session_goes_on(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT, blob_threshold=4 << 20) as log:
        async with log.session() as s:
            with pytest.raises(TooLarge):
                await s.end(error="x" * (2 << 20))
            await s.user_message("still here")
            await s.end()
        assert (await types(log, s.id))[1:] == ["user_message", "session_ended"]


async def test_suspend_stops_the_work_and_leaves_its_calls_in_flight(nats_url: str) -> None:
    started = asyncio.Event()
    stopped: list[str] = []

    async def slow() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append("slow")
            raise

    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            running = asyncio.create_task(s.tool_call("slow", call_id="c", run=slow))
            await started.wait()
            await s.suspend("moving house")
            with pytest.raises(Suspended):
                await running
            with pytest.raises(Suspended):
                await s.user_message("too late")
            with pytest.raises(Suspended):
                await s.wait()
            await s.suspend("again")
        assert stopped == ["slow"]
        assert await types(log, s.id) == ["session_started", "tool_call", "session_suspended"]
        state = await log.state(s.id)
        assert state.reason == "moving house"
        assert [call.phase for call in state.calls] == ["running"]


async def test_calls_that_outlive_the_block_are_left_in_flight(nats_url: str) -> None:
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            running = asyncio.create_task(s.tool_call("slow", call_id="c", run=slow))
            await started.wait()
        with pytest.raises(Suspended):
            await running
        assert await types(log, s.id) == ["session_started", "tool_call", "session_suspended"]


async def test_values_are_made_once_and_returned_ever_after(nats_url: str) -> None:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        return {"t": (1, 2), "nothing": None, "nan": float("inf")}

    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="v") as s:
            first = [await s.value("v", make), await s.value("none", lambda: None)]
            stamp, numbers = await s.now("t"), [await s.random("r"), await s.uuid("u")]
        async with log.session(key="v") as s:
            again = [await s.value("v", make), await s.value("none", lambda: "other")]
            others = [await s.random("r"), await s.uuid("u")]
            assert await s.now("t") == stamp
    assert [*first, *numbers] == [*again, *others]
    assert first[0] == {"t": [1, 2], "nothing": None, "nan": float("inf")}
    assert made == [1]
    assert stamp.tzinfo is not None
    assert len(set(map(str, numbers))) == 2


async def test_a_value_asked_for_by_many_tasks_at_once_is_recorded_once(nats_url: str) -> None:
    counter = iter(range(100))
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        asked = [s.value("n", lambda: next(counter)) for _ in range(20)]
        _, *values = await asyncio.gather(s.append("note", "ahead of them"), *asked)
        assert set(values) == {0}
        said = [s.user_message("hi", once="greeting") for _ in range(20)]
        await asyncio.gather(s.append("note", "ahead of them"), *said)
        recorded = await types(log, s.id)
    assert recorded == ["session_started", "note", "value_recorded", "note", "user_message"]


async def test_what_was_said_once_and_given_up_is_not_said_twice(nats_server: Server) -> None:
    async with connect(nats=nats_server.url, tenant=TENANT) as log, log.session() as s:
        nats_server.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await s.user_message("hi", once="greeting")
        nats_server.resume()
        await s.user_message("hi", once="greeting")
        assert (await types(log, s.id)).count("user_message") == 1


async def test_an_effect_runs_once_whatever_restarts(nats_url: str) -> None:
    runs: list[int] = []

    async def charge() -> str:
        runs.append(1)
        return "receipt 7"

    async with connect(nats=nats_url, tenant=TENANT) as log:
        for _ in range(2):
            async with log.session(key="e") as s:
                assert await s.effect("charge", charge) == "receipt 7"
                assert await s.effect("charge", charge) == "receipt 7"
    assert runs == [1]


async def test_an_effect_that_failed_fails_ever_after_and_is_not_run_again(nats_url: str) -> None:
    runs: list[int] = []

    def charge() -> None:
        runs.append(1)
        raise ValueError("card refused")

    async with connect(nats=nats_url, tenant=TENANT) as log:
        for _ in range(2):
            async with log.session(key="e") as s:
                with pytest.raises(EffectFailed) as failed:
                    await s.effect("charge", charge)
                assert failed.value.result.output["message"] == "card refused"
                assert "card refused" not in str(failed.value)
    assert runs == [1]


async def test_an_effect_asked_for_twice_at_once_runs_once(nats_url: str) -> None:
    runs: list[int] = []
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        asked = [s.effect("charge", lambda: runs.append(1)) for _ in range(5)]
        done = await asyncio.gather(*asked, return_exceptions=True)
    assert runs == [1]
    assert sum(isinstance(each, CallRefused) for each in done) == 4


async def test_a_hook_is_recorded_with_its_decision(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        decided = await s.hook(
            "gate", {"tool": "rm"}, run=lambda event: (event["tool"], "deny"), reason="policy"
        )
        assert decided == ["rm", "deny"]
        events = await stored(log, s.id)
        assert events[1].payload == {"hook": "gate", "event": {"tool": "rm"}}
        assert events[2].payload == {"decision": ["rm", "deny"], "reason": "policy"}
        assert events[2].parent_seq == 2
        assert s.state.hooks == ()


async def test_a_hook_that_fails_or_is_cancelled_is_closed(nats_url: str) -> None:
    def broken(event: Any) -> None:
        raise KeyError(event)

    async def endless(event: Any) -> None:
        del event
        await asyncio.Event().wait()

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises(KeyError):
            await s.hook("gate", "secret", run=broken)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await s.hook("gate", "secret", run=endless)
        assert await payloads(log, s.id, "hook_decision") == [
            {"reason": "KeyError", "outcome": "failed"},
            {"reason": "CancelledError", "outcome": "failed"},
        ]
        assert s.state.hooks == ()


async def test_a_hook_in_flight_at_the_crash_is_closed_as_failed(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="h") as s:
            await s.append("hook_call", {"hook": "gate", "event": 1})
        async with log.session(key="h") as s:
            assert s.state.hooks == ()
        assert (await payloads(log, s.id, "hook_decision"))[0]["outcome"] == "failed"


async def test_the_last_checkpoint_is_in_the_state(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await s.checkpoint({"step": 1})
        await s.checkpoint({"step": 2}, label="half")
        assert s.state.checkpoint is not None
        assert s.state.checkpoint.label == "half"
        assert bytes(s.state.checkpoint.data) == b'{"step":2}'


async def test_compact_replaces_the_beginning_of_the_context(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        await agent(s, Model(says("one")), {})
        keep_from = s.state.seq + 1
        await s.user_message("and now?")
        await s.compact("we said one", keep_from=keep_from)
        kept = [message["content"] for message in s.state.messages()]
    assert kept == ["we said one", "and now?"]


async def test_progress_is_heard_and_never_stored(nats_url: str) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    bus = await connect_bus(nats_url)

    async def listen(message: Any) -> None:
        await heard.put(message.body)

    try:
        await bus.listen(f"flightlog.v1.progress.{TENANT}.*", listen)
        async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
            await s.progress({"delta": "hel"})
            await s.progress("x" * (3 << 20))
            await s.progress({"delta": "lo"})
            assert [await heard.get(), await heard.get()] == [b'{"delta":"hel"}', b'{"delta":"lo"}']
            assert await types(log, s.id) == ["session_started"]
    finally:
        await bus.close()


async def test_a_type_that_nobody_knows_is_kept_as_it_is(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        event = await s.append("weather_report", {"sky": "blue"})
        assert event.payload == {"sky": "blue"}
        assert (await stored(log, s.id))[-1].body == event.body
        assert s.state.counts["weather_report"] == 1


@pytest.mark.parametrize(
    "type",
    ["session_ended", "seal", "tombstone", "a.b", "a b", "", "ümlaut", "x" * 65, "a\n", "1st"],
)
async def test_types_that_are_not_the_harness_own_are_refused(nats_url: str, type: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        with pytest.raises(InvalidValue):
            await s.append(type, {})
        assert await types(log, s.id) == ["session_started"]


async def test_a_payload_that_no_reader_could_read_is_refused(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as s:
        wrong: Any = 5
        for attempt in (
            s.append("tool_call", {"name": 1}),
            s.checkpoint({}, label=wrong),
            s.user_message("hi", origin=wrong),
            s.user_message("hi", once="\ud800"),
        ):
            with pytest.raises(InvalidValue):
                await attempt
        await s.user_message("still usable")
        assert await types(log, s.id) == ["session_started", "user_message"]


async def test_on_event_sees_what_is_appended_live_and_nothing_of_the_restore(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        seen: list[Event] = []
        async with log.session(key="o", on_event=seen.append) as s:
            await s.user_message("one")
        later: list[Event] = []
        async with log.session(key="o", on_event=later.append) as s:
            assert not s.replaying
            await s.user_message("two")
        everything = await types(log, s.id)
    assert [e.type for e in seen] + [e.type for e in later] == everything
    assert [e.type for e in later] == ["session_resumed", "user_message", "session_suspended"]


async def test_an_on_event_that_fails_loses_no_ack(
    nats_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError(event.type)

    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(on_event=broken) as s:
            await s.user_message("one")
            await s.user_message("two")
        assert (await types(log, s.id)).count("user_message") == 2
    assert "on_event failed at seq 2" in caplog.text


async def test_the_key_and_the_labels_are_in_the_state(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="nightly/1", labels={"job": "nightly"}) as s:
            assert s.key == "nightly/1"
        async with log.session(id=s.id, labels={"try": "2"}, harness_version="1.4") as s:
            assert s.key == "nightly/1"
            assert s.state.labels == {"job": "nightly", "try": "2"}
            assert s.state.harness_version == "1.4"


def test_the_public_names_are_exported() -> None:
    missing = [name for name in flightlog.__all__ if not hasattr(flightlog, name)]
    assert not missing
