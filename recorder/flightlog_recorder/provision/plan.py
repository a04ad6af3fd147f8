"""What is to be made on a broker, and what stands in the way. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.wire import layout
from flightlog.wire import subject as names
from flightlog.wire.layout import STREAM_PREFIX, Config

Found = Mapping[str, Any]


class Wish(Struct, frozen=True):
    """How many log streams and replicas are wanted; None takes what is there, else 1.

    `max_bytes` is what each log stream that is made may hold, and the blobs' one; None: no limit.
    """

    streams: int | None = None
    replicas: int | None = None
    max_bytes: int | None = None
    prefix: str = names.PREFIX


class Refusal(Struct, frozen=True):
    """A stream that is there with other settings, and which ones."""

    stream: str
    fields: list[str]


class Plan(Struct, frozen=True):
    """What to do: streams to create, streams that are right, streams that are others'."""

    create: list[Config]
    there: list[str]
    refused: list[Refusal]


def plan(wish: Wish, found: Sequence[Found]) -> Plan:
    """Compare what is wanted with the streams a broker has; nothing that is there is changed."""
    known = {str(config["name"]): config for config in found}
    logs = [name for name in known if _is_log(name)]
    streams = wish.streams or len(logs) or 1
    replicas = wish.replicas or _replicas(known, logs)
    wanted = layout.log_configs(streams, replicas=replicas, prefix=wish.prefix)
    refused = [Refusal(name, [_one_too_many(streams)]) for name in _surplus(wanted, logs)]
    create: list[Config] = []
    there: list[str] = []
    for config in wanted + layout.side_configs(replicas=replicas, prefix=wish.prefix):
        name = config["name"]
        if name not in known:
            create.append(config | _limit(name, wish))
        elif differing := _differing(config, known[name], len(logs)):
            refused.append(Refusal(name, differing))
        else:
            there.append(name)
    return Plan(create=create, there=there, refused=refused)


def _limit(name: str, wish: Wish) -> Config:
    holds_events = _is_log(name) or name == layout.BLOB_STREAM
    return {"max_bytes": wish.max_bytes} if wish.max_bytes and holds_events else {}


def _differing(wanted: Config, found: Found, logs: int) -> list[str]:
    rows = layout.differences({**wanted, "subjects": sorted(wanted["subjects"])}, found)
    if _is_log(wanted["name"]):
        moved = [row for row in rows if row.startswith("subjects is")]
        rows = [row for row in rows if row not in moved]
        rows += [_slots(wanted, found, logs)] * bool(moved)
    return [row if len(row) < 300 else f"{row[:300]}…" for row in rows]


def _slots(wanted: Config, found: Found, logs: int) -> str:
    """Two lists of 128 subjects help nobody: the slots say the same."""
    have, want = _span(found.get("subjects") or []), _span(wanted["subjects"])
    if have == want:
        return "its subjects have another prefix"
    text = f"it holds slots {have}, but would hold {want}"
    return f"{text}: the number of log streams ({logs}) stays as it was chosen"


def _span(subjects: Sequence[str]) -> str:
    tokens = {token for subject in subjects for token in subject.split(".") if token.isdigit()}
    slots = sorted(int(token) for token in tokens)
    if not slots:
        return "none"
    dense = slots == list(range(slots[0], slots[-1] + 1))
    return f"{slots[0]} to {slots[-1]}" if dense else ", ".join(map(str, slots))


def _surplus(wanted: Sequence[Config], logs: Sequence[str]) -> list[str]:
    names_wanted = {config["name"] for config in wanted}
    return sorted(name for name in logs if name not in names_wanted)


def _one_too_many(streams: int) -> str:
    return f"it is there, but with --streams {streams} it would not be"


def _replicas(known: Mapping[str, Found], logs: Sequence[str]) -> int:
    return min((int(known[name].get("num_replicas", 1)) for name in logs), default=1)


def _is_log(name: str) -> bool:
    tail = name.removeprefix(STREAM_PREFIX)
    return tail != name and tail.isdigit()
