"""The embedded NATS server: its settings, and how one sees that it is up."""

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flightlog_recorder import private
from flightlog_recorder.embedded.binary import nats_server
from flightlog_recorder.embedded.endpoint import LOOPBACK, Endpoint

PROBE_TIMEOUT = 1.0  # seconds
INFO_LIMIT = 64 * 1024  # bytes; the greeting is below 2 KiB

# `sync_interval: always` makes an ack mean: on disk. The default syncs every two minutes.
JETSTREAM = """jetstream {{
  store_dir: {store}
  sync_interval: always
  max_file_store: 1TB
  max_memory_store: 256MB
}}
"""


@dataclass(frozen=True)
class Nats:
    """NATS with JetStream; `extra` settings are appended, an own `access` replaces the token.

    `jetstream=False` leaves JetStream out. Only tests and experiments set any of them.
    """

    extra: str = ""
    access: str | None = None
    jetstream: bool = True

    @property
    def name(self) -> str:
        """The word for it in file names and messages."""
        return "nats"

    def prepare(self, home: Path, endpoint: Endpoint) -> list[str]:
        """Write the settings into `home`; the command that runs the server on them."""
        config = home / "nats.conf"
        private.write(config, self.settings(home / "store", endpoint).encode())
        return [str(nats_server()), "-c", str(config)]

    def settings(self, store: Path, endpoint: Endpoint, *, host: str = LOOPBACK) -> str:
        """The text of the configuration file."""
        access = self.access or f"authorization {{ token: {json.dumps(endpoint.token)} }}"
        jetstream = JETSTREAM.format(store=_quoted(store)) if self.jetstream else ""
        return (
            f"server_name: {endpoint.name}\n"
            f'listen: "{host}:{endpoint.port}"\n'
            f"{access}\n{jetstream}{self.extra}\n"
        )

    def url(self, endpoint: Endpoint) -> str:
        """What a client connects to, token included; the bare address when `access` is set."""
        secret = "" if self.access else f"{endpoint.token}@"
        return f"nats://{secret}{LOOPBACK}:{endpoint.port}"

    def answers(self, endpoint: Endpoint) -> bool:
        """Whether this very server greets us; the token is not shown to whoever listens there."""
        greeting = _greeting(endpoint.port)
        ready = greeting.get("jetstream", False) or not self.jetstream
        return bool(ready and greeting.get("server_name") == endpoint.name)


def _quoted(path: Path) -> str:
    return json.dumps(str(path), ensure_ascii=False)


def _greeting(port: int) -> dict[str, Any]:
    try:
        with (
            socket.create_connection((LOOPBACK, port), PROBE_TIMEOUT) as connection,
            connection.makefile("rb") as stream,
        ):
            verb, _, body = stream.readline(INFO_LIMIT).partition(b" ")
    except OSError:
        return {}
    return json.loads(body) if verb == b"INFO" else {}
