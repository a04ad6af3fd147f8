"""Who follows the logs: the projector's and the subscribers' consumers, and what waits for them.

Pure. All times are the broker's.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from flightlog_recorder.doctor.finding import Finding, Symptom, Unproven, conclude, merged

PROJECTOR, LAG, SUBSCRIBERS = "projector", "projector lag", "subscriber lag"
MUCH = {LAG: 50_000, SUBSCRIBERS: 1_000}  # messages; those of the alerts
GONE = 10.0  # seconds without a request and an acknowledgement
OLD = 60.0  # seconds that a message may wait
_START = "start a projector, and look at its /readyz: python -m flightlog_projector"


class Consumer(Struct, frozen=True):
    """A durable consumer of a stream.

    `owed` messages are not settled, the `oldest` of them for so many seconds; everything up to
    `floor` is, and `quiet` is how long ago the last one was. `is_asked`: a program waits for more.
    """

    stream: str
    name: str
    filter: str
    floor: int
    owed: int
    is_asked: bool
    quiet: float
    told_at: float  # seconds since 1970
    oldest: float = 0.0


def read(stream: str, row: Mapping[str, Any]) -> Consumer:
    """From what the consumer's leader says of it."""
    floor = row.get("ack_floor") or {}
    since = moment(row["ts"]) - moment(floor.get("last_active") or row["created"])
    return Consumer(
        stream=stream,
        name=str(row["name"]),
        filter=str(row["config"].get("filter_subject") or ">"),
        floor=int(floor.get("stream_seq", 0)),
        owed=int(row.get("num_pending", 0)) + int(row.get("num_ack_pending", 0)),
        is_asked=bool(row.get("num_waiting")),
        quiet=since.total_seconds(),
        told_at=moment(row["ts"]).timestamp(),
    )


def moment(text: str) -> datetime:
    """A time of the server; Python reads microseconds, Go writes up to nanoseconds."""
    head, dot, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{head}{dot}{rest[:6].ljust(6, '0') if dot else ''}+00:00")


def check(found: Sequence[Consumer] | Unproven, logs: Sequence[str]) -> list[Finding]:
    """The projector's consumer on each log stream, and those of all subscribers."""
    if isinstance(found, Unproven):
        return [found.finding(LAG), found.finding(SUBSCRIBERS)]
    return [*_projector(found, logs), *_subscribers(found)]


def _projector(found: Sequence[Consumer], logs: Sequence[str]) -> list[Finding]:
    mine = {each.stream: each for each in found if each.name == PROJECTOR}
    symptoms = [
        Symptom(stream, "wrong", "no projector was ever here", _START)
        for stream in logs
        if stream not in mine
    ]
    symptoms += [each for one in mine.values() if (each := _of_projector(one))]
    waiting = sum(each.owed for each in mine.values())
    return conclude(LAG, merged(LAG, symptoms), f"{waiting:,} messages wait for the projector")


def _of_projector(one: Consumer) -> Symptom | None:
    """A busy one asks for more only between two pages, a dead one never."""
    if not one.is_asked and (not one.owed or one.quiet > GONE):
        return Symptom(one.stream, "wrong", "no projector is running", _START)
    return _standing(LAG, one, one.stream, _START)


def _subscribers(found: Sequence[Consumer]) -> list[Finding]:
    others = [each for each in found if "@" in each.name]
    symptoms = [each for one in others if (each := _of_subscriber(one))]
    waiting, names = sum(each.owed for each in others), {each.name for each in others}
    fine = f"{waiting:,} messages wait for {len(names)} subscribers"
    return conclude(SUBSCRIBERS, merged(SUBSCRIBERS, _once(symptoms)), fine)


def _of_subscriber(one: Consumer) -> Symptom | None:
    name, _, tenant = one.name.partition("@")
    removal = f"flightlog --tenant {tenant} subscribe --remove --name {name}"
    mend = f"start it; if it is gone for good: {removal}"
    if not one.owed and not one.is_asked:
        return Symptom(one.name, "warning", "no process of it is running", mend)
    return _standing(SUBSCRIBERS, one, f"{one.name} on {one.stream}", mend)


def _once(symptoms: Sequence[Symptom]) -> list[Symptom]:
    """A subscriber has a consumer in each stream; that it is not running is said once."""
    return list(dict.fromkeys(symptoms))


def _standing(check: str, one: Consumer, of: str, mend: str) -> Symptom | None:
    """Whether what waits, waits for too long, or is too much."""
    waits = f"{one.owed:,} messages wait"
    if one.oldest > OLD and one.quiet > OLD:
        return Symptom(of, "wrong", f"{waits}, none was settled for {_time(one.quiet)}", mend)
    if one.oldest > OLD:
        return Symptom(of, "warning", f"{waits}, the oldest for {_time(one.oldest)}", mend)
    if one.owed > MUCH[check]:
        return Symptom(of, "warning", waits, mend)
    return None


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:,.0f} min"
