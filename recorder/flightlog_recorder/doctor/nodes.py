"""The servers of NATS, as each of them describes itself: version, sync, payload. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from flightlog.wire.layout import MIN_SERVER
from flightlog_recorder.doctor.finding import Finding, Unproven, conclude, named

VERSIONS, SYNC, PAYLOAD = "server versions", "sync_always", "max_payload"
LEAST_PAYLOAD = 1 << 20  # bytes: what an event, and a chunk of a blob, may take
MOST_PAYLOAD = 8 << 20  # bytes; NATS' own advice: beyond it one message holds up the others
_SET_SYNC = "set `sync_interval: always` in its jetstream block, then restart it"


class Node(Struct, frozen=True):
    """One server. `sync_always` is None where it has no JetStream, or did not tell.

    `peers` are the servers that it shares JetStream with. `ahead` is its clock less ours, seconds.
    `id` is minted at each start.
    """

    name: str
    version: str
    max_payload: int
    sync_always: bool | None = None
    peers: tuple[str, ...] = ()
    ahead: float | None = None
    id: str = ""


def read(varz: Mapping[str, Any], ahead: float) -> Node:
    """A server from its own `varz`; it leaves out `sync_always` where that is false."""
    stream = varz.get("jetstream") or {}
    settings, meta = stream.get("config"), stream.get("meta") or {}
    return Node(
        name=str(varz.get("server_name")),
        version=str(varz.get("version")),
        max_payload=int(varz.get("max_payload", 0)),
        sync_always=bool(settings.get("sync_always")) if settings else None,
        peers=tuple(str(each["name"]) for each in meta.get("replicas") or []),
        ahead=ahead,
        id=str(varz.get("server_id")),
    )


class Nodes(Struct, frozen=True):
    """The server we are connected to, and all of them, or why they did not tell.

    `expected` are the servers that streams are known to live on.
    """

    connected: Node
    every: list[Node] | Unproven
    expected: frozenset[str] = frozenset()

    @property
    def told(self) -> list[Node]:
        """Those of which something is known."""
        return [self.connected] if isinstance(self.every, Unproven) else self.every

    @property
    def silent(self) -> list[str]:
        """The servers that are there, or should be, and did not answer."""
        if isinstance(self.every, Unproven):
            return []
        peers = {peer for node in self.every for peer in node.peers}
        names = (self.expected | peers) - {node.name for node in self.every}
        if self.connected.id and self.connected.id not in {node.id for node in self.every}:
            names |= {self.connected.name}  # else other servers would vouch for ours
        return sorted(names)


def check(nodes: Nodes) -> list[Finding]:
    """Version, sync and payload of each server."""
    return [*_versions(nodes), *_sync(nodes), *_payload(nodes)]


def _versions(nodes: Nodes) -> list[Finding]:
    least = ".".join(map(str, MIN_SERVER))
    found = [
        Finding(
            VERSIONS,
            "wrong",
            f"{node.name} runs {node.version}, older than {least}",
            f"upgrade nats-server on {node.name} to {least} or newer, one node at a time",
        )
        for node in nodes.told
        if _number(node.version) < MIN_SERVER
    ]
    versions = sorted({node.version for node in nodes.told})
    if len(versions) > 1 and not found:
        text = f"the servers run {named(versions)}"
        found = [Finding(VERSIONS, "warning", text, "bring all to the newest, one node at a time")]
    found += [_silent(VERSIONS, name) for name in nodes.silent]
    seen = "the one we are connected to" if isinstance(nodes.every, Unproven) else "each server"
    return conclude(VERSIONS, found, f"nats-server {named(versions)} ({seen})")


def _sync(nodes: Nodes) -> list[Finding]:
    if isinstance(nodes.every, Unproven):
        return [nodes.every.finding(SYNC)]
    found = [
        Finding(SYNC, "wrong", f"{node.name}: an ack does not mean on disk", _SET_SYNC)
        for node in nodes.every
        if node.sync_always is False
    ]
    found += [_silent(SYNC, name) for name in nodes.silent]
    stores = [node.name for node in nodes.every if node.sync_always]
    if not stores and not found:
        found = [Unproven("no server that answers has JetStream", _SET_SYNC).finding(SYNC)]
    return conclude(SYNC, found, f"proven on {named(stores)}")


def _silent(check: str, name: str) -> Finding:
    mend = f"start {name}, or let it reach the others: nats server list"
    return Unproven(f"{name} does not answer", mend).finding(check)


def _payload(nodes: Nodes) -> list[Finding]:
    found = [_misfit(node) for node in nodes.told]
    sizes = sorted({node.max_payload for node in nodes.told})
    return conclude(
        PAYLOAD, [each for each in found if each], f"{named(map(_mib, sizes))} a message"
    )


def _misfit(node: Node) -> Finding | None:
    if node.max_payload < LEAST_PAYLOAD:
        text = f"{node.name} takes {node.max_payload:,} bytes a message, {LEAST_PAYLOAD:,} needed"
        mend = f"set `max_payload: 1MB` on {node.name}, then: nats-server --signal reload"
        return Finding(PAYLOAD, "wrong", text, mend)
    if node.max_payload > MOST_PAYLOAD:
        text = f"{node.name} takes {_mib(node.max_payload)} a message: others wait behind it"
        mend = f"set `max_payload: 8MB` on {node.name}, then: nats-server --signal reload"
        return Finding(PAYLOAD, "warning", text, mend)
    return None


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.4g} MiB"


def _number(version: str) -> tuple[int, ...]:
    """The numbers of a version; one that cannot be read is older than any."""
    parts = version.lstrip("v").split("-", 1)[0].split(".")
    return tuple(int(part) for part in parts) if all(map(str.isdigit, parts)) else ()
