"""How far the projector got: the floors in Redis, beside the streams themselves. Pure."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from flightlog_recorder.doctor.consumers import PROJECTOR, Consumer
from flightlog_recorder.doctor.finding import Finding, Symptom, Unproven, conclude, merged

CHECK = "projector progress"
STALE = 30.0  # seconds after the last acknowledgement; a floor follows within 6
_EMPTY = "stop the projectors, empty this Redis (FLUSHDB), start them: they rebuild the catalog"
_START = "start a projector on this Redis (FLIGHTLOG_REDIS_URL): python -m flightlog_projector"


class Standing(Struct, frozen=True):
    """What Redis remembers of a stream: its floor (None: never whole), and who is left out."""

    floor: int | None
    rebuilding: bool
    aside: list[str]


def check(
    found: Mapping[str, Standing] | Unproven,
    last: Mapping[str, int],
    consumers: Sequence[Consumer] | Unproven,
) -> list[Finding]:
    """`last` is each log stream's last sequence."""
    if isinstance(found, Unproven):
        return [found.finding(CHECK)]
    settled = {} if isinstance(consumers, Unproven) else _settled(consumers)
    symptoms = [
        symptom
        for stream, standing in found.items()
        for symptom in (
            _floor(stream, standing, last.get(stream, 0), settled.get(stream, 0)),
            _aside(stream, standing),
        )
        if symptom
    ]
    return conclude(CHECK, merged(CHECK, symptoms), "all that was acknowledged is in the catalog")


def _settled(consumers: Sequence[Consumer]) -> dict[str, int]:
    """Up to where each stream was acknowledged long ago, while a projector runs."""
    return {
        each.stream: each.floor
        for each in consumers
        if each.name == PROJECTOR and each.is_asked and each.quiet > STALE
    }


def _floor(stream: str, standing: Standing, last: int, settled: int) -> Symptom | None:
    floor = standing.floor
    if standing.rebuilding:
        wait = "wait: /readyz of the projector tells when"
        return Symptom(stream, "warning", "the catalog is being rebuilt", wait)
    if floor is None:
        return Symptom(stream, "wrong", "its part of the catalog was never whole", _START)
    if floor > last:
        text = f"projected up to {floor:,}, but the stream ends at {last:,}: restored or made anew"
        return Symptom(stream, "wrong", text, _EMPTY)
    if floor < settled:
        text = f"projected up to {floor:,} here, {settled:,} elsewhere: not the projector's Redis"
        return Symptom(stream, "wrong", text, _START)
    return None


def _aside(stream: str, standing: Standing) -> Symptom | None:
    if not standing.aside:
        return None
    count, first = len(standing.aside), standing.aside[0]
    text = f"{count} session{'s' * (count > 1)} cannot be projected, such as {first}"
    return Symptom(stream, "warning", text, f"flightlog verify {first}")
