"""NATS and Redis together, started here or given by the environment."""

import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flightlog_recorder.embedded import home as homes
from flightlog_recorder.embedded.home import Home
from flightlog_recorder.embedded.nats import Nats
from flightlog_recorder.embedded.server import Kind, Server, running
from flightlog_recorder.embedded.valkey import Valkey

NATS_VARIABLE = "FLIGHTLOG_NATS_URL"
REDIS_VARIABLE = "FLIGHTLOG_REDIS_URL"


@dataclass(frozen=True)
class Servers:
    """Where NATS and Redis are. `nats`, `redis` and `data` are None for what runs elsewhere."""

    nats_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    data: Path | None
    nats: Server | None = field(repr=False)
    redis: Server | None = field(repr=False)

    def environment(self) -> dict[str, str]:
        """The variables under which every Flightlog process finds these servers."""
        return {NATS_VARIABLE: self.nats_url, REDIS_VARIABLE: self.redis_url}


@contextmanager
def embedded(
    data: Path | None = None, *, nats_url: str | None = None, redis_url: str | None = None
) -> Generator[Servers]:
    """Run NATS and Valkey for the length of a block; a URL that is given replaces its server.

    `data` survives (default: a new directory, removed at the end). The servers die with this
    process, however it dies. Raises `AlreadyRunning`, `DataRefused`, `ServerMissing`,
    `ServerFailed`.
    """
    with ExitStack() as stack:
        home = None
        if not (nats_url and redis_url):
            home = stack.enter_context(homes.kept(data) if data else homes.passing())
        nats = _run(stack, Nats(), home, given=nats_url)
        redis = _run(stack, Valkey(), home, given=redis_url)
        yield Servers(
            nats_url=nats.url if nats else nats_url or "",
            redis_url=redis.url if redis else redis_url or "",
            data=home.path if home else None,
            nats=nats,
            redis=redis,
        )


@contextmanager
def servers(
    data: Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> Generator[Servers]:
    """Like `embedded`; what FLIGHTLOG_NATS_URL or FLIGHTLOG_REDIS_URL names is used as it is."""
    nats_url, redis_url = environ.get(NATS_VARIABLE), environ.get(REDIS_VARIABLE)
    with embedded(data, nats_url=nats_url, redis_url=redis_url) as found:
        yield found


def _run(stack: ExitStack, kind: Kind, home: Home | None, *, given: str | None) -> Server | None:
    if given or home is None:
        return None
    return stack.enter_context(running(kind, home.path / kind.name, hold=[home.lock]))
