"""Who follows the logs: the projector's and the subscribers' consumers, and what waits for them.

Pure. All times are the broker's: when a consumer was described, and last active.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from flightlog_recorder.doctor.finding import Finding, Unproven, conclude

PROJECTOR, LAG, SUBSCRIBERS = "projector", "projector lag", "subscriber lag"
MUCH = {LAG: 50_000, SUBSCRIBERS: 1_000}  # messages; those of the alerts
STILL = 60.0  # seconds without an acknowledgement, while there is something to acknowledge
_RESTART = "restart the projector, and look at its /readyz: python -m flightlog_projector"

Row = Mapping[str, Any]
Found = Mapping[str, list[Row]]  # the durable consumers of each stream


def check(found: Found | Unproven, logs: list[str]) -> list[Finding]:
    """The projector's consumer on each log stream, and those of all subscribers."""
    if isinstance(found, Unproven):
        return [found.finding(LAG), found.finding(SUBSCRIBERS)]
    return [*_projector(found, logs), *_subscribers(found)]


def _projector(found: Found, logs: list[str]) -> list[Finding]:
    rows = {stream: _named(found.get(stream, []), PROJECTOR) for stream in logs}
    problems = [
        Finding(LAG, "wrong", f"{stream} has no consumer {PROJECTOR}: no projector ran", _RESTART)
        for stream, row in rows.items()
        if row is None
    ]
    there = {stream: row for stream, row in rows.items() if row is not None}
    problems += [
        each for stream, row in there.items() if (each := _standing(LAG, stream, row, _RESTART))
    ]
    waiting = sum(map(_owed, there.values()))
    return conclude(LAG, problems, f"{waiting:,} messages wait for the projector")


def _named(rows: list[Row], name: str) -> Row | None:
    return next((row for row in rows if row["name"] == name), None)


def _subscribers(found: Found) -> list[Finding]:
    rows = [
        (stream, row) for stream, rows in found.items() for row in rows if "@" in str(row["name"])
    ]
    problems = [
        each
        for stream, row in rows
        if (each := _standing(SUBSCRIBERS, stream, row, _attend(str(row["name"]))))
    ]
    names = {str(row["name"]) for _, row in rows}
    waiting = sum(_owed(row) for _, row in rows)
    return conclude(
        SUBSCRIBERS, problems, f"{waiting:,} messages wait for {len(names)} subscribers"
    )


def _attend(name: str) -> str:
    who, _, tenant = name.partition("@")
    again = f"flightlog --tenant {tenant} subscribe"
    return f"start it; if it is gone for good: {again} --remove --name {who}"


def _standing(check: str, stream: str, row: Row, mend: str) -> Finding | None:
    """What is wrong with a consumer: nobody asks it, it stands still, or much waits."""
    name, owed, idle = row["name"], _owed(row), _idle(row)
    of = f"{name} on {stream}"
    if owed and idle > STILL:
        text = f"{of}: {owed:,} messages wait, none was acknowledged for {_time(idle)}"
        return Finding(check, "wrong", text, mend)
    if not owed and not row.get("num_waiting"):
        return Finding(check, "warning", f"{of}: nobody asks for messages", mend)
    if owed > MUCH[check]:
        return Finding(check, "warning", f"{of}: {owed:,} messages wait", mend)
    return None


def _owed(row: Row) -> int:
    return int(row.get("num_pending", 0)) + int(row.get("num_ack_pending", 0))


def _idle(row: Row) -> float:
    """Seconds since it last got on: an acknowledgement, or its own creation."""
    last = (row.get("ack_floor") or {}).get("last_active") or row["created"]
    return (moment(row["ts"]) - moment(last)).total_seconds()


def moment(text: str) -> datetime:
    """A time of the server; Python reads microseconds, Go writes up to nanoseconds."""
    head, dot, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{head}{dot}{rest[:6].ljust(6, '0') if dot else ''}+00:00")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
