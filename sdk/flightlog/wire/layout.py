"""Which stream holds which slot, and the settings a stream must have to be a log."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog.errors import LayoutRefused
from flightlog.wire import subject as names

STREAM_PREFIX = "FLIGHTLOG_"
INBOX_STREAM = "FLIGHTLOG_inbox"
NOTICE_STREAM = "FLIGHTLOG_notice"
STALLED = "session_stalled"  # the type of the notice that a session runs and is not heard of
BLOB_STREAM = "FLIGHTLOG_blobs"
DEAD_STREAM = "FLIGHTLOG_dead"
KEYS_STREAM = f"KV_{names.KEYS_BUCKET}"
MIN_SERVER = (2, 15, 0)  # below it compression and batches were seen to misbehave together
NOTICE_MAX_AGE = 7 * 86_400.0  # seconds
_NANOSECONDS = 1_000_000_000

# Operators change these; everything else must be as wanted (DESIGN section 3).
_FREE = frozenset({"max_bytes", "num_replicas", "placement", "compression"})
# Not ours to want, but fatal to a log: no acks, no writes, or messages that nobody appended.
_NEVER = ("sealed", "no_ack", "mirror", "sources", "subject_transform", "allow_msg_counter")
_WIRE = "flightlog.wire"
_WIRE_VERSION = "1"
_DRAINING = "flightlog.draining"

Config = dict[str, Any]


class Layout(Struct, frozen=True):
    """The slot-to-stream map of one broker."""

    streams: tuple[str, ...]  # log streams, in order of their number
    slots: tuple[str, ...]  # slot -> stream name
    replicas: int = 1
    prefix: str = names.PREFIX
    draining: frozenset[str] = frozenset()  # log streams in which no session begins any more

    def mint(self) -> str:
        """A new session's id, in a stream that is not draining; `LayoutRefused` if all are."""
        if self.draining.issuperset(self.streams):
            raise LayoutRefused(
                "every log stream is draining: no session can begin",
                advice=f"take {_DRAINING} out of a stream's metadata",
            )
        while self.stream_of(minted := names.mint()) in self.draining:
            pass
        return minted

    def stream_of(self, session: str) -> str:
        """The stream that holds the session's log."""
        return self.slots[names.slot(session)]


def log_configs(streams: int, *, replicas: int = 1, prefix: str = names.PREFIX) -> list[Config]:
    """The log streams to create: `streams` of them share the 64 slots evenly."""
    if not 1 <= streams <= names.SLOTS:
        raise LayoutRefused(f"{streams} streams asked for", advice="choose 1 to 64")
    owned: list[list[int]] = [[] for _ in range(streams)]
    for slot in range(names.SLOTS):
        owned[slot * streams // names.SLOTS].append(slot)
    return [
        _log_config(f"{STREAM_PREFIX}{n}", slots, replicas, prefix) for n, slots in enumerate(owned)
    ]


def _log_config(name: str, slots: list[int], replicas: int, prefix: str) -> Config:
    subjects = [f"{prefix}.{slot}.*.*.{part}" for slot in slots for part in ("base", "live")]
    return _file_stream(name, subjects, replicas) | {
        "deny_delete": True,
        "allow_atomic": True,
        "allow_msg_ttl": True,
        # Replicas killed under load were seen to stay out on 2.15.1: "s2: corrupt input"; 0 of 8
        # without compression (docs/guarantees.md).
        "compression": "s2" if replicas == 1 else "none",
    }


def side_configs(*, replicas: int = 1, prefix: str = names.PREFIX) -> list[Config]:
    """The streams beside the logs: inbox, notices, blobs, dead letters, and the keys bucket."""
    return [
        _file_stream(INBOX_STREAM, [f"{prefix}.inbox.*.*.*"], replicas),
        _file_stream(NOTICE_STREAM, [f"{prefix}.notice.*.*"], replicas)
        | {"max_age": int(NOTICE_MAX_AGE * _NANOSECONDS), "discard": "old"},
        _file_stream(BLOB_STREAM, [f"{prefix}.blob.*.*.*"], replicas) | {"max_msgs_per_subject": 1},
        _file_stream(DEAD_STREAM, [f"{prefix}.dead.*.*.*.*"], replicas)
        | {"max_msgs_per_subject": 1, "allow_msg_ttl": True},
        _file_stream(KEYS_STREAM, [f"$KV.{names.KEYS_BUCKET}.>"], replicas)
        | {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True},
    ]


def _file_stream(name: str, subjects: list[str], replicas: int) -> Config:
    return {
        "name": name,
        "subjects": subjects,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_age": 0,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": -1,
        "num_replicas": replicas,
        "deny_delete": False,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "allow_direct": True,
        "metadata": {_WIRE: _WIRE_VERSION},
    }


def differences(wanted: Config, found: Mapping[str, Any]) -> list[str]:
    """Settings in which a stream is not a log as we know it; empty when it may be used."""
    rows = [
        f"{field} is {found.get(field)!r}, must be {value!r}"
        for field, value in wanted.items()
        if field not in _FREE | {"metadata", "name"} and _given(found, field, value) != value
    ]
    if found.get("persist_mode") == "async":
        rows.append("persist_mode is 'async': an ack would not mean on disk")
    rows += [f"{field} is set" for field in _NEVER if found.get(field)]
    if (found.get("metadata") or {}).get(_WIRE) != _WIRE_VERSION:
        rows.append(f"metadata {_WIRE} is not {_WIRE_VERSION!r}")
    return rows


def _given(found: Mapping[str, Any], field: str, wanted: object) -> object:
    value = found.get(field)
    if value is None and (wanted is False or wanted == 0):
        return wanted  # the server leaves out what is false or zero
    return sorted(value) if isinstance(value, list) and isinstance(wanted, list) else value


def read_layout(configs: Sequence[Mapping[str, Any]], *, prefix: str = names.PREFIX) -> Layout:
    """Make the map from the streams a broker has; raises `LayoutRefused` for any other shape."""
    logs = _logs(configs)
    if not logs:
        raise LayoutRefused("this broker has no Flightlog streams")
    slots: dict[int, str] = {}
    for config in logs:
        for slot in _slots(config, prefix):
            if slots.setdefault(slot, config["name"]) != config["name"]:
                raise LayoutRefused(f"slot {slot} is claimed by two streams")
    if len(slots) != names.SLOTS:
        raise LayoutRefused(f"{names.SLOTS - len(slots)} of {names.SLOTS} slots have no stream")
    _check_each(configs, prefix)
    return Layout(
        streams=tuple(c["name"] for c in logs),
        slots=tuple(slots[n] for n in range(names.SLOTS)),
        replicas=min(int(c.get("num_replicas", 1)) for c in logs),
        prefix=prefix,
        draining=frozenset(c["name"] for c in logs if _DRAINING in (c.get("metadata") or {})),
    )


def wanted(configs: Sequence[Mapping[str, Any]], *, prefix: str = names.PREFIX) -> list[Config]:
    """What each stream of a broker must be set to: logs by the slots they hold, and the others.

    Raises `LayoutRefused` for a log that holds something else than slots.
    """
    logs = [_log_config(c["name"], _slots(c, prefix), 1, prefix) for c in _logs(configs)]
    in_order = [config | {"subjects": sorted(config["subjects"])} for config in logs]
    return in_order + side_configs(prefix=prefix)


def _logs(configs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted((c for c in configs if _number(c["name"]) is not None), key=_by_number)


def _check_each(configs: Sequence[Mapping[str, Any]], prefix: str) -> None:
    found = {config["name"]: config for config in configs}
    for each in wanted(configs, prefix=prefix):
        if each["name"] not in found:
            raise LayoutRefused(f"stream {each['name']} is missing")
        _refuse(each["name"], differences(each, found[each["name"]]))


def _refuse(stream: str, rows: list[str]) -> None:
    if rows:
        raise LayoutRefused(
            f"stream {stream} has other settings: {'; '.join(rows)}",
            advice="flightlog never rewrites a stream: mend it, or use another prefix",
        )


def _slots(config: Mapping[str, Any], prefix: str) -> list[int]:
    found = set()
    for text in config.get("subjects") or []:
        token = str(text).removeprefix(f"{prefix}.").split(".")[0]
        if not token.isdigit() or int(token) >= names.SLOTS:
            raise LayoutRefused(f"stream {config['name']} binds a subject that is no slot")
        found.add(int(token))
    return sorted(found)


def _number(stream: str) -> int | None:
    tail = stream.removeprefix(STREAM_PREFIX)
    return int(tail) if tail != stream and tail.isdigit() else None


def _by_number(config: Mapping[str, Any]) -> int:
    return _number(config["name"]) or 0
