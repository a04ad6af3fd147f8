"""Real servers on loopback, for the demo, `flightlog up` and tests: NATS and Valkey."""

from flightlog_recorder.embedded.faults import AlreadyRunning, DataRefused, ServerFailed
from flightlog_recorder.embedded.faults import ServerMissing as ServerMissing
from flightlog_recorder.embedded.nats import Nats
from flightlog_recorder.embedded.pair import Servers, embedded, servers
from flightlog_recorder.embedded.server import Server
from flightlog_recorder.embedded.valkey import Valkey

__all__ = [
    "AlreadyRunning",
    "DataRefused",
    "Nats",
    "Server",
    "ServerFailed",
    "ServerMissing",
    "Servers",
    "Valkey",
    "embedded",
    "servers",
]
