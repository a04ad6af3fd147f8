"""The invariants of tool calls: nothing recorded runs again, and every start has its reason."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.sim.oracle import Told
from tests.sim.world import World

Name = tuple[Any, Any]  # (seq of the announcing response, call id)


@dataclass(slots=True)
class _Call:
    starts: int = 0
    reruns: int = 0
    results: int = 0
    key: str = ""
    policy: str = ""


def check(world: World, session: str, counted: list[Told]) -> None:
    """Check the calls of one log against it, and against the side effects that were seen."""
    calls: dict[Name, _Call] = {}
    for each in counted:
        for wrong in _follow(calls, each):
            world.violated(f"{session}: {wrong} at seq {each.seq}")
    ran = Counter((r.announced_by, r.call_id) for r in world.records.runs if r.session == session)
    for name, times in ran.items():
        starts = calls[name].starts if name in calls else 0
        if times > starts and not world.weather.tamper:
            world.violated(f"{session}: {name} ran {times} times, {starts} starts are recorded")


def _follow(calls: dict[Name, _Call], event: Told) -> list[str]:
    said = event.payload
    match event.type:
        case "tool_call":
            return _started(calls.setdefault(_name(said), _Call()), said)
        case "tool_result":
            call = calls.setdefault(_name(said), _Call())
            call.results += 1
            return [f"{_name(said)} has {call.results} results"] if call.results > 1 else []
        case "decision_made" if said["ruling"] == "rerun":
            call = calls.setdefault(_name(said["call"]), _Call())
            call.reruns += 1
            unasked = said["by"] == "policy" and call.policy not in ("rerun", "")
            return [f"{_name(said['call'])} is rerun, its policy is {call.policy}"] * unasked
        case _:
            return []


def _started(call: _Call, said: dict[str, Any]) -> list[str]:
    call.starts += 1
    call.policy = said.get("on_resume", "ask")
    wrong: list[str] = []
    if call.results:
        wrong.append(f"{_name(said)} has a result and is started again")
    if call.starts > 1 + call.reruns:
        wrong.append(f"{_name(said)} is started again without a ruling")
    if said.get("attempt", 1) != call.starts:
        wrong.append(f"{_name(said)} is attempt {said.get('attempt', 1)}, not {call.starts}")
    if call.key and said.get("idempotency_key", "") != call.key:
        wrong.append(f"{_name(said)} changed its idempotency key")
    call.key = said.get("idempotency_key", "")
    return wrong


def _name(said: dict[str, Any]) -> Name:
    return said.get("announced_by"), said["call_id"]
