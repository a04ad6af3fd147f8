"""A NATS cluster of three nodes on loopback, for whatever needs replicas."""

import contextlib
import json
import secrets
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flightlog_recorder.embedded import Nats, Server, ServerFailed, endpoint
from flightlog_recorder.embedded.endpoint import LOOPBACK

SIZE = 3
HEALTH_DEADLINE = 20.0  # seconds; the first election takes about one
HEALTH_POLL = 0.02  # seconds
MENDING_DEADLINE = 8.0  # seconds; a replica that comes back at all takes about two
STARTS = 5


class Node(Server):
    """One server of the cluster, with its monitoring port."""

    def __init__(self, kind: Nats, home: Path, *, name: str, monitor: int) -> None:
        super().__init__(kind, home)
        self.name = name
        self._monitor = monitor

    def monitor(self, path: str) -> Any:
        """What the monitoring endpoint `path` says, such as `varz` or `jsz?streams=1`."""
        address = f"http://{LOOPBACK}:{self._monitor}/{path}"
        with urllib.request.urlopen(address, timeout=2) as answer:
            return json.load(answer)

    @property
    def healthy(self) -> bool:
        """Whether JetStream is up, has a leader in sight and is current."""
        try:
            led = self.monitor("jsz").get("meta_cluster", {}).get("leader")
            return bool(led and self.monitor("healthz")["status"] == "ok")
        except OSError:
            return False


class Cluster:
    """Three nodes that share one token, or an `access` of their own; `url` lists them all.

    `extra` are settings of a node, by its name: n1, n2, n3.
    """

    def __init__(
        self, home: Path, *, access: str | None = None, extra: Mapping[str, str] | None = None
    ) -> None:
        token, password = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        routes = [endpoint.fresh("route").port for _ in range(SIZE)]
        self.nodes: list[Node] = []
        for number, route in enumerate(routes, start=1):
            own = f"{_routing(route, routes, password)}\n{(extra or {}).get(f'n{number}', '')}"
            self.nodes.append(_node(home / f"n{number}", f"n{number}", token, own, access))

    @property
    def urls(self) -> list[str]:
        """One URL a node, token included."""
        return [node.url for node in self.nodes]

    @property
    def url(self) -> str:
        """All nodes in one string, as `flightlog.connect(nats=...)` takes it."""
        return ",".join(self.urls)

    def node(self, name: str) -> Node:
        """The node of this server name, as `STREAM.INFO` names leaders."""
        return next(node for node in self.nodes if node.name == name)

    def start(self) -> None:
        """Start every node that is down and wait until all agree on a leader."""
        for node in self.nodes:
            node.start()
        self.wait_until_healthy()

    def wait_until_healthy(self, *, timeout: float = HEALTH_DEADLINE) -> None:
        """Wait until every running node is current."""
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            while node.running and not node.healthy:
                if time.monotonic() > deadline:
                    raise ServerFailed(node.name, node.log, "it did not become healthy")
                time.sleep(HEALTH_POLL)

    def bring_back(self, node: Node) -> int:
        """Start a node that was killed and wait until it is current; returns how many starts.

        nats-server 2.15 may fail to mend the end of an s2-compressed store that it was killed over
        ("smb.truncate: ... s2: corrupt input"): that replica stays out; another start mostly helps.
        """
        for starts in range(1, STARTS):
            node.start()
            with contextlib.suppress(ServerFailed):
                self.wait_until_healthy(timeout=MENDING_DEADLINE)
                return starts
            node.kill()
        node.start()
        self.wait_until_healthy()
        return STARTS

    def kill(self) -> None:
        """Kill all nodes."""
        for node in self.nodes:
            node.kill()


def _node(home: Path, name: str, token: str, own: str, access: str | None) -> Node:
    where = endpoint.fresh(name)
    home.mkdir(mode=0o700)
    endpoint.save(home / "endpoint.json", endpoint.Endpoint(where.port, token, name))
    monitor = endpoint.fresh("monitor").port
    extra = f"{own}\nhttp: {LOOPBACK}:{monitor}\n"
    return Node(Nats(extra=extra, access=access), home, name=name, monitor=monitor)


def _routing(own: int, routes: list[int], password: str) -> str:
    others = ", ".join(f'"nats://route:{password}@{LOOPBACK}:{port}"' for port in routes)
    return (
        f"cluster {{ name: test, listen: {LOOPBACK}:{own}, no_advertise: true,\n"
        f"  authorization {{ user: route, password: {json.dumps(password)} }},\n"
        f"  routes: [ {others} ] }}"
    )
