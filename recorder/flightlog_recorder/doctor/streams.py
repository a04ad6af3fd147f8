"""The streams: settings, room and replicas, as their leaders describe them. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from flightlog.errors import LayoutRefused
from flightlog.wire import layout
from flightlog.wire import subject as names
from flightlog.wire.layout import Config
from flightlog_recorder.doctor.consumers import moment
from flightlog_recorder.doctor.finding import (
    EACH,
    Finding,
    Symptom,
    Unproven,
    conclude,
    merged,
    named,
)

SETTINGS, ROOM, REPLICAS = "stream settings", "stream room", "replicas"
FULL, NEARLY_FULL = 0.95, 0.8  # of max_bytes
SILENT = 10.0  # seconds; replicas speak every second
_NANOSECONDS = 1_000_000_000
_TOLD = 160  # characters of a difference: two lists of subjects help nobody
_BY_HAND = "--interactive"  # the whole of the settings in an editor
_FOR_GOOD = (
    "storage",
    "retention",
    "max_consumers",
    "deny_purge",
    "persist_mode",
    "sealed",
    "mirror",
)
_FLAGS = {
    "max_msgs": "--max-msgs",
    "max_msg_size": "--max-msg-size",
    "max_msgs_per_subject": "--max-msgs-per-subject",
    "discard": "--discard",
}
_SWITCHES = {
    "deny_delete": "deny-delete",
    "allow_rollup_hdrs": "allow-rollup",
    "allow_direct": "allow-direct",
}

Info = Mapping[str, Any]


class Streams(Struct, frozen=True):
    """Every stream of the account as its leader describes it; `leaderless` have none that does.

    `refused` is why there is no list at all.
    """

    infos: list[Info]
    leaderless: list[str] = []
    prefix: str = names.PREFIX
    refused: str = ""

    @property
    def ours(self) -> list[Info]:
        """Those that Flightlog keeps its logs in, and those beside them."""
        known = {config["name"] for config in layout.side_configs()}
        return [each for each in self.infos if each["config"]["name"] in known or _is_log(each)]

    @property
    def logs(self) -> list[Info]:
        """The log streams."""
        return [each for each in self.infos if _is_log(each)]

    @property
    def settled(self) -> bool:
        """Whether every replica is current: after a change it takes a moment."""
        groups = [each.get("cluster") or {} for each in self.ours]
        return all(row.get("current") for each in groups for row in each.get("replicas") or [])

    @property
    def homes(self) -> frozenset[str]:
        """The servers that hold them."""
        groups = [each["cluster"] for each in self.ours if each.get("cluster")]
        leaders = {group["leader"] for group in groups if group.get("leader")}
        return frozenset(
            leaders | {row["name"] for group in groups for row in group.get("replicas") or []}
        )


def _is_log(info: Info) -> bool:
    tail = str(info["config"]["name"]).removeprefix(layout.STREAM_PREFIX)
    return tail.isdigit()


def check(streams: Streams) -> list[Finding]:
    """Settings, room and replicas of every stream."""
    if streams.refused:
        why = Unproven(streams.refused, "nats server report jetstream", is_wrong=True)
        return [why.finding(each) for each in (SETTINGS, ROOM, REPLICAS)]
    if not streams.ours and not streams.leaderless:
        return [_none(each) for each in (SETTINGS, ROOM, REPLICAS)]
    return [*_settings(streams), *_room(streams), *_replicas(streams)]


def _none(check: str) -> Finding:
    text = "this account has no Flightlog streams"
    return Finding(check, "wrong", text, "flightlog provision --streams 8 --replicas 3")


def _settings(streams: Streams) -> list[Finding]:
    configs = [info["config"] for info in streams.infos]
    if not streams.logs and not streams.leaderless:
        return [_none(SETTINGS)]
    known = {config["name"]: config for config in configs}
    try:
        symptoms = [
            symptom
            for each in layout.wanted(configs, prefix=streams.prefix)
            if each["name"] not in streams.leaderless
            for symptom in _differing(each, known)
        ]
        if not symptoms and not streams.leaderless:
            layout.read_layout(configs, prefix=streams.prefix)
    except LayoutRefused as exc:
        return [Finding(SETTINGS, "wrong", str(exc), "flightlog provision --json says more")]
    count = len(streams.logs)
    fine = f"{count} log stream{'s' * (count > 1)} and those beside them are as they must be"
    return conclude(SETTINGS, merged(SETTINGS, symptoms), fine)


def _differing(wanted: Config, known: Mapping[str, Config]) -> list[Symptom]:
    name = str(wanted["name"])
    if name not in known:
        return [Symptom(name, "wrong", "missing", "flightlog provision")]
    return [
        Symptom(name, "wrong", _short(row), _edit(row.split()[0], wanted))
        for row in layout.differences(wanted, known[name])
    ]


def _short(row: str) -> str:
    return row if len(row) <= _TOLD else f"{row[:_TOLD]}…"


def _edit(field: str, wanted: Config) -> str:
    """The command of the `nats` tool that sets a field as it must be."""
    if field in _FOR_GOOD or (field == "deny_delete" and not wanted[field]):
        return f"it cannot be changed: drain and replace {EACH} (docs/operations.md, Scaling)"
    return f"nats stream edit {EACH} {_option(field, wanted)}"


def _option(field: str, wanted: Config) -> str:
    if field == "max_age":
        return f"--max-age={wanted[field] // _NANOSECONDS}s"
    if field == "metadata":
        return " ".join(f"--metadata {key}={value}" for key, value in wanted[field].items())
    if field in _FLAGS:
        return f"{_FLAGS[field]}={wanted[field]}"
    if field in _SWITCHES:
        return f"--{'' if wanted[field] else 'no-'}{_SWITCHES[field]}"
    return _BY_HAND


def _room(streams: Streams) -> list[Finding]:
    found = [each for info in streams.ours if (each := _fullness(info))]
    limits = [info for info in streams.ours if _limit(info) > 0]
    fine = f"{len(limits)} have a max_bytes, none is near it" if limits else "no max_bytes is set"
    return conclude(ROOM, found, fine)


def _fullness(info: Info) -> Finding | None:
    name, limit = info["config"]["name"], _limit(info)
    share = info["state"]["bytes"] / limit if limit > 0 else 0.0
    if share < NEARLY_FULL:
        return None
    text = f"{name} holds {share:.0%} of its max_bytes; a full log refuses to append"
    mend = f"nats stream edit {name} --max-bytes={2 * limit}"
    return Finding(ROOM, "wrong" if share >= FULL else "warning", text, mend)


def _limit(info: Info) -> int:
    return int(info["config"].get("max_bytes") or -1)


def _replicas(streams: Streams) -> list[Finding]:
    symptoms = [_leaderless(name) for name in streams.leaderless]
    symptoms += [each for info in streams.ours for each in _group(info)]
    counts = sorted({_copies(info) for info in streams.ours})
    fine = f"{named(map(str, counts))} of each stream, all current"
    return conclude(REPLICAS, merged(REPLICAS, symptoms), fine)


def _leaderless(stream: str) -> Symptom:
    mend = "start the nodes that are down: nats server report jetstream"
    return Symptom(stream, "wrong", "no leader, so nothing is stored", mend)


def _group(info: Info) -> list[Symptom]:
    name, group = str(info["config"]["name"]), info.get("cluster") or {}
    rows = group.get("replicas") or []
    found = [each for row in rows if (each := _stale(name, row, _led_for(info)))]
    if group and not group.get("leader"):
        found.append(_leaderless(name))
    if group.get("name") and _copies(info) == 1:
        text = "one replica in a cluster: a lost node takes it along"
        found.append(Symptom(name, "warning", text, f"nats stream edit {EACH} --replicas=3"))
    return found


def _copies(info: Info) -> int:
    return int(info["config"].get("num_replicas") or 1)


def _stale(stream: str, row: Info, led_for: float) -> Symptom | None:
    """What a leader says of a replica; it is `active` since its last word, or since never (0)."""
    node, silent = row["name"], row.get("active", 0) / _NANOSECONDS or led_for
    if row.get("current"):
        return None
    if row.get("offline") or silent > SILENT:
        mend = f"start {node}; if it is gone for good: nats server cluster peer-remove {node}"
        return Symptom(stream, "wrong", f"the replica on {node} is gone", mend)
    mend = f"wait; if it stays: nats stream cluster peer-remove {EACH} {node}"
    return Symptom(stream, "warning", f"the replica on {node} is not current", mend)


def _led_for(info: Info) -> float:
    """Seconds that the leader has led, by its own clock."""
    since = info["cluster"].get("leader_since")
    return (moment(info["ts"]) - moment(since)).total_seconds() if since else SILENT
