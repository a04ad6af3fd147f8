"""A harness process killed with SIGKILL inside its tools: each policy gets its own ruling."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from flightlog import Ended, Log, connect
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT, chain_is_whole, payloads, stored, until
from tests.system.processes import Workshop

# Each process takes a second on an idle machine; this suite runs on a busy one.
pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def session_of(log: Log, key: str = "job") -> str:
    found = await log.look_up(key)
    assert found is not None
    return found


async def results(log: Log, id: str) -> dict[str, tuple[str, str]]:
    """By call: the outcome and who resolved it."""
    return {
        result["call_id"]: (result.get("outcome", "ok"), result.get("resolved_by", "run"))
        for result in await payloads(log, id, "tool_result")
    }


async def decisions(log: Log, id: str) -> list[tuple[str, str, str]]:
    """Every decision_made: the call, its ruling, who decided."""
    made = await payloads(log, id, "decision_made")
    return [(each["call"]["call_id"], each["ruling"], each["by"]) for each in made]


def told(workshop_words: list[Any], call_id: str) -> Any:
    """What the model was told about a call."""
    return next(block for block in workshop_words if block["tool_use_id"] == call_id)


async def last_words(log: Log, id: str) -> list[dict[str, Any]]:
    """The results as the model got them, which it repeats in its last word."""
    response = (await payloads(log, id, "model_response"))[-1]
    text: list[dict[str, Any]] = json.loads(response["message"]["content"][0]["text"])
    return text


async def test_a_call_that_may_run_again_runs_again_with_the_same_key(
    workshop: Workshop, log: Log
) -> None:
    workshop.plan(("c", "look", {"path": "a"}), hold=["c"])
    await workshop.kill_when(workshop.agent(), "c")
    workshop.release()
    await workshop.ended(workshop.agent())
    session = await session_of(log)
    assert [run["attempt"] for run in workshop.runs] == [1, 2]
    assert len({run["key"] for run in workshop.runs}) == 1
    assert await decisions(log, session) == [("c", "rerun", "policy")]
    assert await results(log, session) == {"c": ("ok", "rerun")}
    assert (await log.state(session)).next == Ended("completed")


async def test_a_call_that_may_not_run_again_fails_and_the_model_is_told(
    workshop: Workshop, log: Log
) -> None:
    workshop.plan(("c", "send", {"to": "ann"}), hold=["c"])
    await workshop.kill_when(workshop.agent(), "c")
    await workshop.ended(workshop.agent())
    session = await session_of(log)
    assert len(workshop.runs) == 1
    assert await decisions(log, session) == [("c", "fail", "policy")]
    assert await results(log, session) == {"c": ("unknown", "policy")}
    assert "not known whether the call took effect" in str(
        told(await last_words(log, session), "c")
    )


@pytest.mark.parametrize("name", ["pay", "undeclared"])
async def test_a_call_that_a_person_must_rule_waits_and_is_never_run(
    workshop: Workshop, log: Log, name: str
) -> None:
    workshop.plan(("c", name, {"amount": 7}), hold=["c"])
    await workshop.kill_when(workshop.agent(), "c")
    workshop.release()
    for _ in range(3):
        await workshop.ended(workshop.agent())
    session = await session_of(log)
    assert len(workshop.runs) == 1
    asked = await payloads(log, session, "decision_requested")
    assert [each["call"]["call_id"] for each in asked] == ["c"]
    assert await results(log, session) == {}


async def test_n_calls_in_flight_get_n_rulings_and_what_is_done_is_left_alone(
    workshop: Workshop, log: Log
) -> None:
    plan: list[tuple[str, str, dict[str, Any]]] = [
        (f"{name}-{n}", name, {}) for n in range(3) for name in ("look", "send", "pay")
    ]
    held = [call_id for call_id, _, _ in plan if not call_id.endswith("0")]
    workshop.plan(*plan, hold=held)
    child = workshop.agent()

    async def others_are_done() -> bool:
        known = await log.look_up("job")
        return known is not None and len(await results(log, known)) == len(plan) - len(held)

    await until(others_are_done, timeout=60)
    await workshop.kill_when(child, *(call_id for call_id, _, _ in plan))
    workshop.release()
    await workshop.ended(workshop.agent())
    session = await session_of(log)
    ruled = [call for call, _, _ in await decisions(log, session)]
    asked = [each["call"]["call_id"] for each in await payloads(log, session, "decision_requested")]
    assert sorted(ruled + asked) == sorted(held)
    ran = [run["id"] for run in workshop.runs]
    again = [f"look-{n}" for n in (1, 2)]
    assert sorted(ran) == sorted([call_id for call_id, _, _ in plan] + again)
    assert chain_is_whole(await stored(log, session))


async def test_what_was_announced_and_not_started_runs_once(workshop: Workshop, log: Log) -> None:
    workshop.plan(("a", "undeclared", {}), ("b", "look", {}), ("c", "pay", {}), hold=["b"])
    await workshop.kill_when(workshop.agent("job", "--one-by-one"), "b")
    workshop.release()
    await workshop.ended(workshop.agent("job", "--one-by-one"))
    session = await session_of(log)
    assert [run["id"] for run in workshop.runs] == ["a", "b", "b", "c"]
    assert await decisions(log, session) == [("b", "rerun", "policy")]
    assert (await log.state(session)).next == Ended("completed")


async def test_a_rerun_that_dies_too_is_ruled_anew(workshop: Workshop, log: Log) -> None:
    workshop.plan(("c", "look", {}), hold=["c"])
    for attempt in (1, 2, 3):
        child = workshop.agent()
        await _kill_at_attempt(workshop, child, attempt)
    workshop.release()
    await workshop.ended(workshop.agent())
    session = await session_of(log)
    assert [run["attempt"] for run in workshop.runs] == [1, 2, 3, 4]
    assert len({run["key"] for run in workshop.runs}) == 1
    assert await decisions(log, session) == [("c", "rerun", "policy")] * 3
    assert [call["attempt"] for call in (await payloads(log, session, "tool_call"))[1:]] == [
        2,
        3,
        4,
    ]


async def test_the_result_equals_that_of_a_run_that_nobody_interrupted(
    workshop: Workshop, log: Log
) -> None:
    workshop.plan(("a", "look", {}), ("b", "look", {}), hold=["b"])
    await workshop.kill_when(workshop.agent("killed"), "a", "b")
    workshop.release()
    await workshop.ended(workshop.agent("killed"))
    await workshop.ended(workshop.agent("whole"))
    killed, whole = [await session_of(log, key) for key in ("killed", "whole")]
    assert await last_words(log, killed) == await last_words(log, whole)


async def test_twenty_processes_that_open_one_key_at_once_get_one_session(
    workshop: Workshop, log: Log
) -> None:
    children = [workshop.start("opener.py", "raced") for _ in range(20)]
    await asyncio.gather(*(workshop.ended(child) for child in children))
    said = [json.loads(line) for line in workshop.words.splitlines()]
    assert len(said) == 20
    opened = {each["id"] for each in said if "id" in each}
    assert opened == {await session_of(log, "raced")}
    assert {each["error"] for each in said if "error" in each} <= {"Fenced"}
    events = await stored(log, opened.pop())
    assert chain_is_whole(events)
    assert [event.type for event in events].count("session_started") == 1


async def _kill_at_attempt(workshop: Workshop, child: Any, attempt: int) -> None:
    while len(workshop.runs) < attempt:
        assert child.alive, workshop.words
        await asyncio.sleep(0.01)
    child.kill()
