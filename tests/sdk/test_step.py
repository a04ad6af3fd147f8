import pytest

from flightlog.step import (
    AwaitUser,
    Call,
    CallModel,
    Decide,
    Ended,
    RunTools,
    Step,
    idempotency_key,
)


def word(step: Step) -> str:
    match step:
        case Ended(status):
            return status
        case RunTools(calls) | Decide(calls):
            return " ".join(call.name for call in calls)
        case CallModel():
            return "model"
        case AwaitUser():
            return "user"


CALL = Call("ls", "c1", 4, {}, 1, "k")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Ended("completed"), "completed"),
        (RunTools((CALL,)), "ls"),
        (Decide((CALL, CALL)), "ls ls"),
        (CallModel(), "model"),
        (AwaitUser(), "user"),
    ],
)
def test_every_step_can_be_matched_by_position(step: Step, expected: str) -> None:
    assert word(step) == expected


def test_steps_with_equal_calls_are_equal() -> None:
    assert RunTools((CALL,)) == RunTools((Call("ls", "c1", 4, {}, 1, "k"),))
    steps: list[Step] = [RunTools(()), Decide(())]
    assert steps[0] != steps[1]


def test_an_idempotency_key_names_session_announcement_and_call_and_nothing_else() -> None:
    key = idempotency_key("s", 4, "c1")
    assert key == idempotency_key("s", 4, "c1")
    others = {idempotency_key(*name) for name in [("f", 4, "c1"), ("s", 5, "c1"), ("s", 4, "c2")]}
    assert len({key, *others}) == 4
    assert len(key) == 32
    assert idempotency_key("s", None, "\ud800")
