"""The embedded Valkey (or Redis) server: its settings, and how one sees that it is up."""

import socket
from dataclasses import dataclass
from pathlib import Path

from flightlog_recorder import private
from flightlog_recorder.embedded.binary import redis_server
from flightlog_recorder.embedded.endpoint import LOOPBACK, Endpoint

PROBE_TIMEOUT = 1.0  # seconds

# A lost second costs a longer tail at the next resume; an evicted key would cost a rebuild.
SETTINGS = """bind {host}
port {port}
protected-mode yes
requirepass {token}
dir "{store}"
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
always-show-logo no
"""


@dataclass(frozen=True)
class Valkey:
    """Valkey with an append-only file; `extra` settings are appended."""

    extra: str = ""

    @property
    def name(self) -> str:
        """The word for it in file names and messages."""
        return "valkey"

    def prepare(self, home: Path, endpoint: Endpoint) -> list[str]:
        """Write the settings into `home`; the command that runs the server on them."""
        store = home / "store"
        store.mkdir(mode=0o700, exist_ok=True)
        config = home / "valkey.conf"
        private.write(config, self.settings(store, endpoint).encode())
        return [str(redis_server()), str(config)]

    def settings(self, store: Path, endpoint: Endpoint, *, host: str = LOOPBACK) -> str:
        """The text of the configuration file."""
        quoted = str(store).replace("\\", "\\\\").replace('"', '\\"')
        text = SETTINGS.format(host=host, port=endpoint.port, token=endpoint.token, store=quoted)
        return f"{text}{self.extra}\n"

    def url(self, endpoint: Endpoint) -> str:
        """What a client connects to, token included."""
        return f"redis://:{endpoint.token}@{LOOPBACK}:{endpoint.port}/0"

    def answers(self, endpoint: Endpoint) -> bool:
        """Whether this very server takes requests: it knows the token, and has loaded its data."""
        try:
            with (
                socket.create_connection((LOOPBACK, endpoint.port), PROBE_TIMEOUT) as connection,
                connection.makefile("rb") as stream,
            ):
                connection.sendall(f"AUTH {endpoint.token}\r\nPING\r\n".encode())
                return [stream.readline(), stream.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        except OSError:
            return False
