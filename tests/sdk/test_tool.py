"""What a tool declares about itself."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from flightlog import InvalidValue, tool
from flightlog.tool import policies_of, policy_of
from flightlog.wire.payload import Policy


@tool(on_resume="rerun", effect="read")
def look(path: str) -> str:
    return path


@tool()
async def send(text: str) -> None:
    del text


def undeclared() -> None:
    pass


class Shell:
    @tool(on_resume="fail")
    def run(self, command: str) -> str:
        return command


def test_a_declared_function_stays_what_it_is() -> None:
    assert look("a") == "a"
    assert look.__name__ == "look"


def test_the_policy_is_found_on_functions_methods_and_coroutines() -> None:
    assert policy_of(look) == Policy(on_resume="rerun", effect="read")
    assert policy_of(send) == Policy(on_resume="ask", effect="write")
    assert policy_of(Shell().run) == Policy(on_resume="fail", effect="write")


def test_nothing_declared_is_no_policy() -> None:
    assert policy_of(undeclared) is None
    assert policy_of(None) is None
    assert policy_of(len) is None


def test_policies_are_listed_by_the_names_that_the_model_knows() -> None:
    by_name = policies_of([look, undeclared, Shell().run])
    assert by_name == {"look": Policy("rerun", "read"), "run": Policy("fail", "write")}
    tools: dict[str, Callable[..., Any]] = {"ls": look, "nothing": undeclared}
    assert set(policies_of(tools)) == {"ls"}
    assert policies_of([functools.partial(look, "a")]) == {}


@pytest.mark.parametrize(
    "words", [{"effect": "mail"}, {"on_resume": "retry"}, {"on_resume": ["rerun"]}]
)
def test_a_word_that_is_no_policy_is_refused_where_it_is_declared(words: Any) -> None:
    with pytest.raises(InvalidValue, match=f"{next(iter(words))}.* it is one of r"):
        tool(**words)
