"""What a tool declares about itself: whether it may run again, and whether it changes anything."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast, get_args

from flightlog.errors import InvalidValue
from flightlog.wire.payload import Effect, OnResume, Policy

F = TypeVar("F", bound=Callable[..., Any])
Tools = Mapping[str, Callable[..., Any]] | Iterable[Callable[..., Any]]

_ATTRIBUTE = "__flightlog_policy__"
UNDECLARED = Policy()  # ask a person, and assume that it writes


def tool(*, on_resume: OnResume = "ask", effect: Effect = "write") -> Callable[[F], F]:
    """Declare what becomes of a call of this tool that was in flight when its process died.

    `rerun`: idempotent, run it again with the same idempotency key. `fail`: tell the model that the
    effect is unknown. `ask`: a person decides. The policy is written into each tool_call, so that
    whoever resumes obeys it without having the tool's code. Raises `InvalidValue` for other words.
    """
    declared = policy(on_resume, effect)

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def policy(on_resume: OnResume, effect: Effect) -> Policy:
    """The policy of these words. Raises `InvalidValue` for one that is none."""
    for what, word, words in (
        ("on_resume", on_resume, get_args(OnResume)),
        ("effect", effect, get_args(Effect)),
    ):
        if word not in words:
            raise InvalidValue(what, f"it is one of {', '.join(words)}")
    return Policy(on_resume=on_resume, effect=effect)


def policy_of(function: Callable[..., Any] | None) -> Policy | None:
    """What `@tool` declared on the function, or None."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, Policy) else None


def policies_of(tools: Tools) -> dict[str, Policy]:
    """The declared policies by tool name."""
    if isinstance(tools, Mapping):
        named = cast("Mapping[str, Callable[..., Any]]", tools)
    else:
        named = {_name(function): function for function in tools}
    found = {name: policy_of(function) for name, function in named.items()}
    return {name: policy for name, policy in found.items() if policy is not None}


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
