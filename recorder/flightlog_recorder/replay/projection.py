"""A projection that is named on the command line, and one run of it over a session's events."""

from typing import Any

from flightlog import FlightlogError, InvalidValue, Projection
from flightlog.event import Event
from flightlog.snapshot import SESSION
from flightlog_recorder import named

BUILT_IN = "session"  # names the SDK's own projection, in place of MODULE:NAME

AnyProjection = Projection[Any]


class BadProjection(FlightlogError):
    """What was named cannot be run as a projection."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"{name} cannot be checked: {why}")


def load(name: str) -> AnyProjection:
    """The projection that `MODULE:NAME` names, an instance or a class without arguments.

    The module is imported, from the working directory too. Raises `InvalidValue`, `BadProjection`.
    """
    if name == BUILT_IN:
        return SESSION
    try:
        found = named.load(name, what="a projection")
        made = found() if isinstance(found, type) else found
    except InvalidValue:
        raise InvalidValue("a projection", f"name it as MODULE:NAME, or {BUILT_IN}") from None
    except Exception as exc:  # whatever a harness' class raises when it is made
        why = exc.why if isinstance(exc, named.BadName) else type(exc).__name__
        raise BadProjection(name, f"it cannot be loaded ({why})") from exc
    for part in ("initial", "apply", "encode", "decode"):
        if not callable(getattr(made, part, None)):
            raise BadProjection(name, f"it has no {part}()")
    loaded: AnyProjection = made
    return loaded


class Run:
    """A projection on its way through a session; `written` is its state as bytes."""

    def __init__(self, projection: AnyProjection) -> None:
        self._projection = projection
        self._state = projection.initial()
        self.written = projection.encode(self._state)

    def step(self, event: Event) -> str | None:
        """Apply the event; the promise that is broken, if one is.

        Costs four states written, so it grows with the state.
        """
        try:
            return self._step(event)
        except Exception as exc:  # noqa: BLE001 - the projection's own; its text may quote a payload
            return f"it raises {type(exc).__name__}"

    def _step(self, event: Event) -> str | None:
        projection, before, written = self._projection, self._state, self.written
        self._state = projection.apply(before, event)
        self.written = projection.encode(self._state)
        if projection.encode(before) != written:
            return "apply changes the older state"
        if projection.encode(projection.apply(self._state, event)) != self.written:
            return "an event that is in the state already changes it"
        again = projection.apply(projection.decode(written), event)
        if projection.encode(again) != self.written:
            return "a state that was written and read goes on to another one"
        return None
