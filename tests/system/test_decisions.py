"""A person rules what no policy may: through the inbox, once, with name and reason in the log."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from flightlog import (
    AwaitUser,
    CallModel,
    Decide,
    EffectFailed,
    NeedsDecision,
    Result,
    RunTools,
    Session,
    Suspended,
    connect,
)
from flightlog.log import Log
from flightlog.running import inbox
from flightlog.wire.payload import OnResume
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT, Model, asks, payloads, says, types, until
from tests.system.processes import Workshop


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


@pytest.fixture
async def person(servers: Servers) -> AsyncIterator[Log]:
    """Whoever decides: another connection, which never becomes the writer."""
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


async def leave_in_flight(log: Log, key: str, *calls: str, announced: bool = True) -> str:
    """A session whose calls run when its process goes away; its id."""
    running: list[asyncio.Task[Any]] = []
    started: list[str] = []

    async with log.session(key=key) as s:

        async def endless(call_id: str) -> None:
            started.append(call_id)
            await asyncio.Event().wait()

        await s.user_message("pay", once="task")
        if announced:
            await turn(s, asks(*((c, "pay", {"call_id": c}) for c in calls)))
            step = s.state.next
            assert isinstance(step, RunTools)
            running += [asyncio.create_task(s.tool_call(c, run=endless)) for c in step.calls]
        else:
            running += [
                asyncio.create_task(s.tool_call("pay", {"call_id": c}, call_id=c, run=endless))
                for c in calls
            ]
        await until(lambda: len(started) == len(calls))
    done = await asyncio.gather(*running, return_exceptions=True)
    assert all(isinstance(each, Suspended) for each in done)
    return s.id


async def turn(session: Session, *script: dict[str, Any]) -> None:
    model = Model(*script)
    for _ in script:
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)


def undecided(session: Session) -> tuple[Any, ...]:
    step = session.state.next
    assert isinstance(step, Decide)
    return step.calls


async def test_a_result_that_a_person_gives_is_the_calls_result(log: Log, person: Log) -> None:
    await leave_in_flight(log, "k", "c")
    async with log.session(key="k") as s:
        (call,) = undecided(s)
        with pytest.raises(NeedsDecision):
            await s.tool_call(call, run=pytest.fail)
        waiting = asyncio.create_task(s.wait())
        ruling = inbox.decision(
            "c",
            announced_by=call.announced_by,
            ruling="result",
            output={"paid": 7},
            by="ann",
            reason="seen in the bank",
        )
        sequence = await person.send(s.id, ruling)
        assert await waiting
        await until(lambda: s.state.next == CallModel())
        assert await s.tool_call(call, run=pytest.fail) == Result("ok", {"paid": 7})
        (made,) = await payloads(log, s.id, "decision_made")
        assert made["by"] == "ann"
        assert made["reason"] == "seen in the bank"
        assert made["ruling"] == "result"
        assert made["inbox"] == sequence
        (result,) = await payloads(log, s.id, "tool_result")
        assert result["resolved_by"] == "person"
        await turn(s, says("thank you"))
        assert s.state.next == AwaitUser()


async def test_a_rerun_that_a_person_orders_runs_once_with_the_same_key(
    log: Log, person: Log
) -> None:
    await leave_in_flight(log, "k", "c")
    runs: list[str] = []
    async with log.session(key="k") as s:
        (asked,) = undecided(s)
        ruling = inbox.decision("c", announced_by=asked.announced_by, ruling="rerun", by="ann")
        await person.send(s.id, ruling)
        assert await s.wait(5)
        step = s.state.next
        assert isinstance(step, RunTools)
        (call,) = step.calls
        assert (call.attempt, call.idempotency_key) == (2, asked.idempotency_key)
        await s.tool_call(call, run=lambda **given: runs.append(given["call_id"]))
        assert s.state.next == CallModel()
        first, second = await payloads(log, s.id, "tool_call")
        assert first["idempotency_key"] == second["idempotency_key"] == call.idempotency_key
        assert second["attempt"] == 2
    assert runs == ["c"]


async def test_a_failure_that_a_person_rules_is_told_to_the_model(log: Log, person: Log) -> None:
    await leave_in_flight(log, "k", "c")
    async with log.session(key="k") as s:
        (call,) = undecided(s)
        await person.send(
            s.id, inbox.decision("c", announced_by=call.announced_by, ruling="fail", by="ann")
        )
        await until(lambda: s.state.next == CallModel())
        (result,) = await payloads(log, s.id, "tool_result")
        assert (result["outcome"], result["resolved_by"]) == ("unknown", "person")
        block = s.state.messages()[-1]["content"][0]
        assert "not known" in str(block["content"])


async def test_the_first_decision_wins_and_later_ones_are_recorded_as_refused(
    log: Log, person: Log
) -> None:
    await leave_in_flight(log, "k", "c")
    async with log.session(key="k") as s:
        (call,) = undecided(s)
        for n, who in enumerate(("ann", "ben", "cem")):
            ruling = inbox.decision(
                "c", announced_by=call.announced_by, ruling="result", output=n, by=who
            )
            await person.send(s.id, ruling)
        await until(lambda: s.state.counts.get("decision_made") == 3)
        made = await payloads(log, s.id, "decision_made")
        assert [(each["by"], each["ruling"]) for each in made] == [
            ("ann", "result"),
            ("ben", "refused"),
            ("cem", "refused"),
        ]
        assert (await s.tool_call(call, run=pytest.fail)).output == 0
        assert (await types(log, s.id)).count("tool_result") == 1


async def test_a_decision_sent_while_nobody_writes_is_taken_on_opening(
    log: Log, person: Log
) -> None:
    session = await leave_in_flight(log, "k", "c")
    async with log.session(key="k") as s:
        (call,) = undecided(s)
    await person.send(
        session, inbox.decision("c", announced_by=call.announced_by, ruling="fail", by="ann")
    )
    for _ in range(2):
        async with log.session(key="k") as s:
            assert s.state.next == CallModel()
            assert s.state.counts["decision_made"] == 1


async def test_an_undecided_call_is_touched_by_no_recovery(log: Log) -> None:
    session = await leave_in_flight(log, "k", "a", "b")
    for _ in range(3):
        async with log.session(key="k") as s:
            assert {call.call_id for call in undecided(s)} == {"a", "b"}
    recorded = await types(log, session)
    assert recorded.count("decision_requested") == 2
    assert "decision_made" not in recorded
    assert "tool_result" not in recorded
    (row,) = [c for c in (await log.state(session)).calls if c.call_id == "a"]
    assert "did it take effect" in row.question


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "unannounced"])
async def test_each_of_several_calls_is_ruled_by_its_own_decision(
    log: Log, person: Log, announced: bool
) -> None:
    await leave_in_flight(log, "k", "a", "b", "c", announced=announced)
    async with log.session(key="k") as s:
        by = undecided(s)[0].announced_by
        assert (by is None) != announced
        for call_id in ("c", "a"):
            await person.send(
                s.id, inbox.decision(call_id, announced_by=by, ruling="fail", by="ann")
            )
        await until(lambda: s.state.counts.get("tool_result") == 2)
        assert [call.call_id for call in undecided(s)] == ["b"]
        await person.send(s.id, inbox.decision("b", announced_by=by, ruling="rerun", by="ann"))
        await until(lambda: s.state.counts.get("decision_made") == 3)
        if not announced:
            again = await s.tool_call(
                "pay", {"call_id": "b"}, call_id="b", run=lambda call_id: call_id
            )
            assert again == Result("ok", "b")
            attempts = [
                call["attempt"]
                for call in await payloads(log, s.id, "tool_call")
                if call["call_id"] == "b" and "attempt" in call
            ]
            assert attempts == [2]


async def interrupted_effect(log: Log, *, on_resume: OnResume | None = None) -> None:
    """An effect whose process goes away while it runs."""
    started = asyncio.Event()

    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async with log.session(key="k") as s:
        running = asyncio.create_task(s.effect("charge", endless, on_resume=on_resume))
        await started.wait()
    with pytest.raises(Suspended):
        await running


async def test_an_effect_in_flight_is_asked_about_and_returns_what_the_person_says(
    log: Log, person: Log
) -> None:
    await interrupted_effect(log)
    async with log.session(key="k") as s:
        with pytest.raises(NeedsDecision):
            await s.effect("charge", pytest.fail)
        (call,) = undecided(s)
        ruling = inbox.decision(
            call.call_id, announced_by=None, ruling="result", output="receipt 7", by="ann"
        )
        await person.send(s.id, ruling)
        await until(lambda: s.state.counts.get("tool_result") == 1)
        assert await s.effect("charge", pytest.fail) == "receipt 7"


async def test_an_effect_in_flight_obeys_its_own_policy(log: Log) -> None:
    await interrupted_effect(log, on_resume="rerun")
    async with log.session(key="k") as s:
        assert await s.effect("charge", lambda: "again") == "again"
    async with log.session(key="k") as s:
        assert await s.effect("charge", pytest.fail) == "again"


async def test_an_effect_that_may_not_run_again_has_failed_for_good(log: Log) -> None:
    await interrupted_effect(log, on_resume="fail")
    for _ in range(2):
        async with log.session(key="k") as s:
            with pytest.raises(EffectFailed, match="unknown"):
                await s.effect("charge", pytest.fail)


async def test_a_decision_about_a_call_that_waits_for_none_is_refused(
    log: Log, person: Log
) -> None:
    async with log.session() as s:
        await s.tool_call("t", call_id="done", run=lambda: 1)
        for call_id in ("done", "never heard of"):
            ruling = inbox.decision(call_id, announced_by=None, ruling="fail", by="policy")
            await person.send(s.id, ruling)
        await until(lambda: s.state.counts.get("decision_made") == 2)
        for made in await payloads(log, s.id, "decision_made"):
            assert made["ruling"] == "refused"
            assert made["by"] != "policy"
        assert (await types(log, s.id)).count("tool_result") == 1


async def test_a_decision_does_not_make_the_sender_a_writer(log: Log, person: Log) -> None:
    session = await leave_in_flight(log, "k", "c")
    async with log.session(key="k") as s:
        (call,) = undecided(s)
        await person.send(
            session, inbox.decision("c", announced_by=call.announced_by, ruling="fail", by="ann")
        )
        await until(lambda: s.state.next == CallModel())
        assert s.state.writer == 2
        await s.user_message("still mine")


@pytest.mark.timeout(60)  # three processes on a busy machine
async def test_a_person_decides_between_two_processes(
    workshop: Workshop, log: Log, person: Log
) -> None:
    workshop.plan(("c", "pay", {"amount": 7}), hold=["c"])
    await workshop.kill_when(workshop.agent(), "c")
    workshop.release()
    await workshop.ended(workshop.agent())
    session = await log.look_up("job")
    assert session is not None
    step = (await log.state(session)).next
    assert isinstance(step, Decide)
    ruling = inbox.decision(
        "c", announced_by=step.calls[0].announced_by, ruling="rerun", by="ann", reason="not paid"
    )
    await person.send(session, ruling)
    await workshop.ended(workshop.agent())
    assert [run["attempt"] for run in workshop.runs] == [1, 2]
    assert (await log.state(session)).status == "completed"
