"""How far the projector got: the floors in Redis, beside the streams themselves. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from flightlog_recorder.doctor.consumers import PROJECTOR, Found, moment
from flightlog_recorder.doctor.finding import Finding, Unproven, conclude, named

CHECK = "projector progress"
STALE = 30.0  # seconds after the last acknowledgement; a floor follows within 6
_EMPTY = "stop the projectors, empty Redis (FLUSHDB), start them: they rebuild the catalog"
_START = "start a projector on this Redis: python -m flightlog_projector"


class Standing(Struct, frozen=True):
    """What Redis remembers of a stream: its floor (None: never whole), and who is left out."""

    floor: int | None
    rebuilding: bool
    aside: list[str]


def check(
    found: Mapping[str, Standing] | Unproven, last: Mapping[str, int], consumers: Found | Unproven
) -> list[Finding]:
    """`last` is each log stream's last sequence."""
    if isinstance(found, Unproven):
        return [found.finding(CHECK)]
    acked = {} if isinstance(consumers, Unproven) else _settled(consumers)
    problems = [
        finding
        for stream, standing in found.items()
        for finding in _problems(stream, standing, last.get(stream, 0), acked.get(stream, 0))
    ]
    return conclude(CHECK, problems, f"the catalog is whole on {len(found)} log streams")


def _settled(consumers: Found) -> dict[str, int]:
    """Up to where each stream was acknowledged, where that is long enough ago."""
    settled: dict[str, int] = {}
    for stream, rows in consumers.items():
        for row in rows:
            floor = row.get("ack_floor") or {}
            since = moment(row["ts"]) - moment(floor.get("last_active") or row["ts"])
            if row["name"] == PROJECTOR and since.total_seconds() > STALE:
                settled[stream] = int(floor["stream_seq"])
    return settled


def _problems(stream: str, standing: Standing, last: int, acked: int) -> list[Finding]:
    found: list[Finding] = []
    if (stands := _floor(stream, standing, last, acked)) is not None:
        found.append(stands)
    if standing.aside:
        text = f"{stream}: {len(standing.aside)} sessions cannot be projected: "
        mend = f"flightlog verify {standing.aside[0]}"
        found.append(Finding(CHECK, "warning", text + named(standing.aside), mend))
    return found


def _floor(stream: str, standing: Standing, last: int, acked: int) -> Finding | None:
    floor = standing.floor
    if standing.rebuilding:
        text = f"{stream}: the catalog is being rebuilt"
        return Finding(CHECK, "warning", text, "wait: /readyz of the projector tells when")
    if floor is None:
        return Finding(CHECK, "wrong", f"{stream}: its catalog was never whole", _START)
    if floor > last:
        text = f"{stream}: projected up to {floor:,}, but the stream ends at {last:,}"
        return Finding(CHECK, "wrong", f"{text}: it was restored or made anew", _EMPTY)
    if floor < acked:
        text = f"{stream}: projected up to {floor:,}, but {acked:,} is acknowledged"
        return Finding(CHECK, "wrong", f"{text}: this is not the projector's Redis", _START)
    return None
