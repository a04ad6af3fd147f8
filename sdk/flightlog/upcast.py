"""Older events and snapshots, read as if they were written today: chains of small pure functions.

A step lifts one version to the next (1 -> 2 -> 3) and stays for ever, as logs do. The stored bytes,
and so the chain of digests, are never touched.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Raw
from msgspec.structs import replace

from flightlog.errors import VersionRefused
from flightlog.event import WIRE_VERSION, Event

EventStep = Callable[[str, Raw], tuple[str, Raw]]  # type and payload, one version up
StateStep = Callable[[bytes], bytes]  # an encoded state, one version up

EVENT_STEPS: Mapping[int, EventStep] = {}  # from wire version n to n + 1
STATE_STEPS: Mapping[tuple[str, int], StateStep] = {}  # from version n of a projection to n + 1


def lift(
    event: Event, *, steps: Mapping[int, EventStep] = EVENT_STEPS, known: int = WIRE_VERSION
) -> Event:
    """The event as version `known` would have written it.

    Raises `VersionRefused` for a newer one: it is not guessed what it means.
    """
    kind, raw = event.type, event.raw
    for version in range(event.v, known):
        if version not in steps:
            raise VersionRefused(event.session_id, f"wire version {event.v}", f"{known}")
        kind, raw = steps[version](kind, raw)
    if event.v > known:
        raise VersionRefused(event.session_id, f"wire version {event.v}", f"{known}")
    return replace(event, type=kind, raw=raw)


def older(
    projection: str, version: int, *, steps: Mapping[tuple[str, int], StateStep] = STATE_STEPS
) -> Iterator[tuple[int, StateStep]]:
    """Older versions of a projection whose states can be lifted to `version`, newest first."""
    chain: list[StateStep] = []
    while (step := steps.get((projection, version - 1))) is not None:
        version -= 1
        chain.insert(0, step)
        yield version, _through(tuple(chain))


def _through(chain: tuple[StateStep, ...]) -> StateStep:
    def lifted(state: bytes) -> bytes:
        for step in chain:
            state = step(state)
        return state

    return lifted
