"""The same names without await, from threads that know no loop."""

import asyncio
import inspect
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import pytest

import flightlog
from flightlog import (
    AwaitUser,
    Call,
    CallModel,
    EffectFailed,
    Event,
    Fenced,
    FlightlogError,
    NoSuchSession,
    RunTools,
    SessionEnded,
    Suspended,
    blocking,
)
from flightlog.running.calling import Calling
from flightlog.running.inbox import Suspend
from flightlog.running.requesting import Requesting
from tests.scripted import TENANT, asks, says

# Nobody who waits asks for these: services hold the first three, signals and `Log` the others.
NOT_FOR_HARNESSES = {"bus", "store", "close", "start", "halt", "listener"}


class Script:
    """A model without await; remembers in which thread it was asked."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self._script = list(script)
        self.threads: list[threading.Thread] = []

    def __call__(self, **_: Any) -> dict[str, Any]:
        self.threads.append(threading.current_thread())
        line = self._script.pop(0)
        if isinstance(line, Exception):
            raise line
        return line


@pytest.fixture
def log(nats_url: str) -> Iterator[blocking.Log]:
    with blocking.connect(nats=nats_url, tenant=TENANT) as found:
        yield found


def called(session: blocking.Session, *names: str) -> tuple[Call, ...]:
    """The calls that a model has just asked for, with the names as their ids, too."""
    session.user_message("go")
    request = {"model": "m", "messages": session.state.messages()}
    session.model_call(request, call=Script(asks(*((name, name, {}) for name in names))))
    step = session.state.next
    assert isinstance(step, RunTools)
    return step.calls


def outcomes(log: blocking.Log, session: str) -> list[str]:
    """How each call ended; the wire leaves out what is `ok`."""
    ended = [event.payload for event in log.read(session) if event.type == "tool_result"]
    return [payload.get("outcome", "ok") for payload in ended]


@pytest.mark.parametrize(
    ("waits", "here"),
    [
        (flightlog.Log, blocking.Log),
        (flightlog.Session, blocking.Session),
        (Calling, blocking.Calling),
        (Requesting, blocking.Requesting),
        (flightlog.Delivery, blocking.Delivery),
    ],
)
def test_every_name_of_the_async_client_is_here_with_the_same_arguments(
    waits: type[Any], here: type[Any]
) -> None:
    names = {name for name in vars(waits) if not name.startswith("_")} - NOT_FOR_HARNESSES
    assert names <= set(dir(here))
    for name in names:
        if callable(getattr(waits, name)):
            expected = inspect.signature(getattr(waits, name)).parameters
            assert list(inspect.signature(getattr(here, name)).parameters) == list(expected), name
            assert inspect.getdoc(getattr(here, name)), name


def test_the_loop_without_await_ends_the_session_and_resumes_it(log: blocking.Log) -> None:
    def loop(session: blocking.Session, model: Script) -> None:
        session.user_message("go", once="task")
        while not isinstance(step := session.state.next, AwaitUser):
            match step:
                case CallModel():
                    request = {"model": "m", "messages": session.state.messages()}
                    session.model_call(request, call=model)
                case RunTools(calls):
                    for call in calls:
                        session.tool_call(call, run=lambda x: x + 1)
                case _:
                    raise AssertionError(step)

    first = Script(asks(("a", "add", {"x": 1})), RuntimeError("the provider is down"))
    with pytest.raises(RuntimeError, match="down"), log.session(key="job") as session:
        loop(session, first)
    with log.session(key="job") as session:
        loop(session, Script(says("done")))
        session.end(result={"ok": True})
    assert log.state(session.id).status == "completed"
    assert [event.type for event in log.read(session.id)].count("tool_call") == 1
    with log.session(key="job") as session, pytest.raises(SessionEnded):
        session.user_message("more")


def test_what_is_handed_over_runs_in_the_thread_that_asked(log: blocking.Log) -> None:
    here = threading.current_thread()
    seen: list[threading.Thread] = []
    colour: ContextVar[str] = ContextVar("colour", default="none")
    colour.set("red")

    def note(**_: Any) -> str:
        seen.append(threading.current_thread())
        return colour.get()

    model = Script(says("hi"))
    with log.session() as session:
        session.user_message("go")
        session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        assert session.tool_call("note", call_id="1", run=note).output == "red"
        assert session.effect("once", note) == "red"
        assert session.value("colour", note) == "red"
        assert session.hook("guard", {"x": 1}, run=note) == "red"
    assert seen == [here] * 4
    assert model.threads == [here]


def test_an_async_function_runs_on_the_background_thread(log: blocking.Log) -> None:
    async def where(**_: Any) -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    with log.session() as session:
        assert session.tool_call("where", call_id="1", run=where).output == "flightlog"
        assert (
            session.tool_call("where", call_id="2", run=lambda **_: where(x=1)).output
            == "flightlog"
        )


def test_a_tools_exception_is_a_result_and_a_models_is_raised(log: blocking.Log) -> None:
    def fails(**_: Any) -> None:
        raise StopIteration

    with log.session() as session:
        result = session.tool_call("fails", call_id="1", run=fails)
        assert (result.outcome, result.output["error"]) == ("error", "RuntimeError")
        session.user_message("go")
        with pytest.raises(ZeroDivisionError):
            session.model_call({"model": "m", "messages": []}, call=lambda **_: 1 / 0)
        with pytest.raises(EffectFailed):
            session.effect("never", fails)


def test_the_two_step_forms_are_blocks(log: blocking.Log) -> None:
    with log.session() as session:
        session.user_message("go")
        request = {"model": "m", "messages": session.state.messages()}
        with session.requesting(request) as asked:
            asked.progress({"text": "h"})
            asked.response(says("hi"))
        assert asked.message["content"][0]["text"] == "hi"
        with session.calling("tool", {"x": 1}, call_id="1") as attempt:
            assert attempt.arguments == {"x": 1}
            attempt.result(2)
        assert attempt.recorded is not None
        assert attempt.recorded.output == 2
        with pytest.raises(KeyError), session.calling("tool", call_id="2"):
            raise KeyError
        assert outcomes(log, session.id) == ["ok", "error"]


def test_parallel_calls_of_a_pool_run_at_once(log: blocking.Log) -> None:
    together = threading.Barrier(4, timeout=10)

    def run(**_: Any) -> int:
        return together.wait()

    with log.session() as session, ThreadPoolExecutor(4) as pool:
        calls = called(session, "a", "b", "c", "d")
        found = list(pool.map(lambda call: session.tool_call(call, run=run), calls))
    assert sorted(result.output for result in found) == [0, 1, 2, 3]


def test_ctrl_c_in_a_function_closes_its_call_and_is_raised(log: blocking.Log) -> None:
    def interrupted(**_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), log.session() as session:
        with pytest.raises(KeyboardInterrupt), session.calling("tool", call_id="1"):
            raise KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            session.tool_call("tool", call_id="2", run=interrupted)
        session.user_message("what now?")
        with pytest.raises(KeyboardInterrupt):
            session.model_call({"model": "m", "messages": []}, call=interrupted)
        assert session.state.open_request is None
        raise KeyboardInterrupt
    assert outcomes(log, session.id) == ["cancelled"] * 2
    assert log.state(session.id).reason == "KeyboardInterrupt"


def test_an_exit_in_a_function_leaves_its_call_in_flight(log: blocking.Log) -> None:
    def exits(**_: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit), log.session() as session:
        session.tool_call("tool", call_id="1", run=exits)
    assert [event.type for event in log.read(session.id)][-2:] == ["tool_call", "session_suspended"]
    assert log.state(session.id).reason == "SystemExit"


def test_a_takeover_is_raised_when_the_function_ends(log: blocking.Log, nats_url: str) -> None:
    def usurped() -> str:
        with blocking.connect(nats=nats_url, tenant=TENANT) as other, other.session(key="job"):
            pass
        return "too late"

    with log.session(key="job") as session:
        with pytest.raises(Fenced):
            session.tool_call("tool", call_id="1", run=usurped)
        with pytest.raises(Fenced):
            session.user_message("mine?")
    assert outcomes(log, session.id) == []


def test_a_suspension_from_outside_is_raised_when_the_function_ends(log: blocking.Log) -> None:
    def suspended() -> None:
        log.send(session.id, Suspend(by="an operator"))
        while session.state.status == "running":
            time.sleep(0.005)

    with log.session() as session, pytest.raises(Suspended):
        session.tool_call("tool", call_id="1", run=suspended)
    assert log.state(session.id).status == "suspended"
    assert outcomes(log, session.id) == []


def test_a_child_is_a_block_in_its_parents_call(log: blocking.Log) -> None:
    with log.session() as session:
        (call,) = called(session, "sub")

        def run() -> str:
            with session.child(call, name="scout") as child:
                child.user_message("look")
                child.end(result="seen")
                return child.id

        result = session.tool_call(call, run=run)
    found = log.state(result.output)
    assert found.lineage.parent is not None
    assert found.lineage.parent.session == session.id


def test_a_long_log_is_read_in_order(log: blocking.Log) -> None:
    with log.session() as session, ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda n: session.append("note", n), range(600)))
    assert [event.seq for event in log.read(session.id)] == list(range(1, 603))
    assert [event.seq for event in log.read(session.id, after=5, until=7)] == [6, 7]
    assert next(log.read(session.id)).seq == 1  # and leave the rest
    with pytest.raises(NoSuchSession):
        log.state("sess_none")


def test_waiting_and_watching_have_time_limits(log: blocking.Log) -> None:
    with log.session() as session, log.watch(session.id) as heard:
        assert session.wait(0.01) is False
        with pytest.raises(TimeoutError):
            heard.get(0.01)
        log.say(session.id, "hello")
        assert session.wait(10)
        assert b"hello" in heard.get(10).body


def test_on_event_must_not_call_back(log: blocking.Log) -> None:
    refused: list[str] = []

    def on_event(event: Event) -> None:
        if event.type == "note":
            try:
                session.checkpoint({})
            except FlightlogError as exc:
                refused.append(str(exc))

    with log.session(on_event=on_event) as session:
        session.append("note", 1)
    assert "must not call back" in refused[0]


def test_a_connection_that_was_left_says_so(nats_url: str) -> None:
    with blocking.connect(nats=nats_url, tenant=TENANT) as log:
        pass
    with pytest.raises(FlightlogError, match="connect again"):
        log.state("sess_x")
    assert "flightlog" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_is_told_to_connect_again(log: blocking.Log, nats_url: str) -> None:
    fork = multiprocessing.get_context("fork")
    told = fork.SimpleQueue()

    def in_the_fork(session: blocking.Session) -> None:
        try:
            session.user_message("from the fork")
        except FlightlogError as exc:
            told.put(str(exc))
        with blocking.connect(nats=nats_url, tenant=TENANT) as own, own.session() as mine:
            told.put(mine.id)

    with log.session() as session:
        child = fork.Process(target=in_the_fork, args=(session,))
        child.start()
        child.join(15)
        assert child.exitcode == 0
        assert "before the fork" in told.get()
        assert log.state(told.get()).status == "suspended"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_that_leaves_the_blocks_of_its_parent_suspends_nothing(log: blocking.Log) -> None:
    class InFork(Exception): ...

    def forked() -> None:
        if os.fork() == 0:
            raise InFork
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

    here = os.getpid()
    try:
        with log.session() as session, session.calling("tool", call_id="1") as attempt:
            forked()
            attempt.result("from the parent")
    except BaseException as exc:
        if os.getpid() != here:
            os._exit(0 if isinstance(exc, InFork) else 1)
        raise
    assert [event.type for event in log.read(session.id)] == [
        "session_started",
        "tool_call",
        "tool_result",
        "session_suspended",
    ]


def test_live_events_come_to_a_loop_without_await(log: blocking.Log) -> None:
    with log.subscribe("n", types=["note"]) as subscription:
        with log.session() as session:
            for n in range(3):
                session.append("note", n)
        seen: list[tuple[int, int]] = []
        for delivery in subscription:
            seen.append((delivery.event.payload, delivery.attempt))
            if delivery.event.payload == 1 and delivery.attempt == 1:
                delivery.retry()
            else:
                delivery.ack()
            if len(seen) == 4:
                break
    assert sorted(seen) == [(0, 1), (1, 1), (1, 2), (2, 1)]


def test_a_function_without_await_handles_what_comes_until_it_is_stopped(
    log: blocking.Log,
) -> None:
    threads: list[threading.Thread] = []
    with log.subscribe("n", types=["note"]) as subscription:

        def handle(delivery: blocking.Delivery) -> None:
            threads.append(threading.current_thread())
            if delivery.attempt == 1:
                raise RuntimeError
            subscription.stop()

        with log.session() as session:
            session.append("note", 1)
        subscription.run(handle)
    assert threads == [threading.current_thread()] * 2


def test_progress_is_heard_without_await(log: blocking.Log) -> None:
    with log.session() as session, log.progress(session.id) as heard:
        session.progress({"percent": 40})
        assert heard.get(10) == {"percent": 40}
