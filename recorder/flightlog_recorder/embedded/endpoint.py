"""Where a server of ours listens and how it knows its clients; kept beside its data."""

import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from flightlog_recorder import private

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Endpoint:
    """One port on loopback, the token that opens it, and the server's own name."""

    port: int
    token: str = field(repr=False)
    name: str


def fresh(kind: str) -> Endpoint:
    """A port that is free now, and a new token of 256 bits."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return Endpoint(port, secrets.token_urlsafe(32), f"{kind}-{secrets.token_hex(8)}")


def load(path: Path) -> Endpoint | None:
    """The endpoint of the last start on the same data; None when there was none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Endpoint)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def save(path: Path, endpoint: Endpoint) -> None:
    """Keep an endpoint for the next start, readable by its owner only."""
    private.write(path, msgspec.json.encode(endpoint))
