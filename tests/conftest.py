"""Real servers for every test: a fresh NATS each, one Valkey emptied in between.

`make test CONTAINERS=1` runs the same tests against containers (tests/containers.py).
"""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
import redis

from flightlog import Log, connect
from flightlog_recorder.embedded import Nats, Server, Servers, Valkey
from tests.cluster import Cluster
from tests.containers import IN_CONTAINERS, REDIS_IMAGES, ContainerServer, in_container
from tests.scripted import TENANT

REDIS_FLAVOURS = list(REDIS_IMAGES) if IN_CONTAINERS else None

# One example's time says how busy the machine is, nothing else.
hypothesis.settings.register_profile("flightlog", deadline=None)
hypothesis.settings.load_profile("flightlog")

# Every ack waits for the disk: stores in memory make the suite three times as fast, and a process
# that is killed leaves the same behind. Durability itself is the embedded servers' own test.
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 4 << 30  # bytes
has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_NEEDED
if "TMPDIR" not in os.environ and has_room:
    tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)

# In a shell's background SIGINT is ignored, also by what we start: Ctrl-C must work there.
signal.signal(signal.SIGINT, signal.default_int_handler)

MakeNats = Callable[..., Server]
MakeRedis = Callable[..., Server]


@pytest.fixture(scope="session", autouse=True)
def no_servers_of_others() -> None:
    """Tests empty what they use, so the servers that the environment names are out of bounds."""
    for name in [name for name in os.environ if name.startswith("FLIGHTLOG_")]:
        if name != "FLIGHTLOG_TEST_CONTAINERS":
            del os.environ[name]


@pytest.fixture
def make_nats() -> Generator[MakeNats]:
    """Start NATS servers with settings of their own: `make_nats(extra=..., access=...)`."""
    with ExitStack() as stack:
        yield lambda **settings: _started(stack, Nats(**settings), image="nats")


@pytest.fixture
def nats_server(make_nats: MakeNats) -> Server:
    """A fresh NATS server with an empty store, to be killed and restarted at will."""
    return make_nats()


@pytest.fixture
def nats_url(nats_server: Server) -> str:
    """The URL of this test's own NATS server, token included."""
    return nats_server.url


@pytest.fixture
def make_redis() -> Generator[MakeRedis]:
    """Start Redis servers with settings of their own: `make_redis(extra="maxmemory 2mb")`."""
    with ExitStack() as stack:
        yield lambda **settings: _started(stack, Valkey(**settings), image="valkey")


@pytest.fixture
def redis_server(make_redis: MakeRedis) -> Server:
    """A fresh Redis server, to be killed and restarted at will."""
    return make_redis()


@pytest.fixture(scope="session", params=REDIS_FLAVOURS)
def shared_redis(request: pytest.FixtureRequest) -> Generator[Server]:
    """The one Redis of the run; tests that stop theirs take `redis_server`."""
    with ExitStack() as stack:
        yield _started(stack, Valkey(), image=getattr(request, "param", "valkey"))


@pytest.fixture
def redis_url(shared_redis: Server) -> str:
    """The URL of an empty Redis, token included."""
    with redis.Redis.from_url(shared_redis.url) as client:
        client.flushall()
    return shared_redis.url


@pytest.fixture
def servers(nats_server: Server, redis_url: str, shared_redis: Server) -> Servers:
    """A fresh NATS and an empty Redis; `servers.redis` is shared: never stop it."""
    return Servers(
        nats_url=nats_server.url,
        redis_url=redis_url,
        data=None,
        nats=nats_server,
        redis=shared_redis,
    )


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    """A connection of the tests' tenant, with Redis."""
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as connected:
        yield connected


@pytest.fixture
def cluster() -> Generator[Cluster]:
    """Three NATS nodes for replicated streams; each can be killed, paused and restarted."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="flightlog-cluster-"))
        nodes = Cluster(Path(home))
        stack.callback(nodes.kill)
        nodes.start()
        yield nodes


def _started(stack: ExitStack, kind: Nats | Valkey, *, image: str) -> Server:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flightlog-test-")))
    server = in_container(kind, home, image=image) if IN_CONTAINERS else Server(kind, home)
    stack.callback(server.remove if isinstance(server, ContainerServer) else server.kill)
    server.start()
    return server
