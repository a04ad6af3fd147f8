"""Subscribers as functions: declared where they are written, run beside each other."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from msgspec import Struct

from flightlog.bus.notices import Start
from flightlog.errors import FlightlogError
from flightlog.subscribing.subscription import ATTEMPTS, Interest, Where

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__flightlog_subscriber__"


class Declared(Struct, frozen=True):
    """What `@subscriber` says of a function: what it wants, and how many calls of it at once."""

    interest: Interest
    parallel: int


def subscriber(
    name: str,
    *,
    types: Collection[str] | None = None,
    where: Where | None = None,
    start: Start = "new",
    attempts: int | None = ATTEMPTS,
    parallel: int = 1,
) -> Callable[[F], F]:
    """Declare a function, sync or async, that `serve` calls with each `Delivery`.

    What it returns from is acknowledged, what it raises from comes again after a pause that
    doubles, and is a dead letter after `attempts`. Up to `parallel` deliveries are in hand at once;
    more processes that serve the same name share the work. The rest is as in `Log.subscribe`.
    """
    interest = Interest(
        name=name, types=types, where=where, start=start, attempts=attempts, ahead=parallel
    )

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, Declared(interest, parallel))
        return function

    return declare


def declared(function: Callable[..., Any]) -> Declared:
    """What `@subscriber` declared on the function; raises `FlightlogError` if nothing."""
    found = getattr(function, _ATTRIBUTE, None)
    if not isinstance(found, Declared):
        name = getattr(function, "__name__", type(function).__name__)
        raise FlightlogError(f"{name} is no subscriber: declare it with @flightlog.subscriber(...)")
    return found
