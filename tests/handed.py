"""Servers set up by `flightlog provision --tenant NAME --output DIR`, and who uses its files."""

import os
import shlex
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from flightlog import connect
from flightlog.bus import access
from flightlog.bus.access import NatsAccess
from flightlog.cache import client as clients
from flightlog.log import Log
from flightlog_recorder.embedded import Nats, Server, Valkey
from flightlog_recorder.embedded.endpoint import Endpoint
from tests.recorder.command import PROGRAM, Command

BOSS = "boss"
SECRET = "a-password-of-the-tests"


@dataclass(frozen=True)
class Handed:
    """A NATS and a Redis whose users come from one directory, and a boss in each of them."""

    home: Path
    nats: Server
    redis: Server

    def environ(self, user: str) -> dict[str, str]:
        """What the user's `env` file sets."""
        [found] = self.home.glob(f"users/*/{user}/env")
        return dict(each.split("=", 1) for each in shlex.split(found.read_text()))

    def program(self, user: str) -> dict[str, str]:
        """The environment of a program that the user runs."""
        return {**os.environ, **self.environ(user), "FLIGHTLOG_HTTP_PORT": "0"}

    def command(self, user: str) -> Command:
        """The `flightlog` command, run by the user."""
        return Command(self.environ(user))

    def access(self, user: str) -> NatsAccess:
        """How the user reaches NATS."""
        return access.resolve(environ=self.environ(user))

    def boss(self, account: str) -> NatsAccess:
        """One who may do anything in the account."""
        url = f"nats://127.0.0.1:{self.nats.port}"
        return NatsAccess(url=url, user=f"{account}-{BOSS}", password=SECRET)

    @asynccontextmanager
    async def log(self, user: str) -> AsyncGenerator[Log]:
        """The user's connection to the log of his tenant."""
        environ = self.environ(user)
        url = access.redis_url(environ=environ)
        tenant = environ["FLIGHTLOG_TENANT"]
        async with connect(
            nats=self.access(user), redis=url, tenant=tenant, provision=False
        ) as log:
            yield log

    @asynccontextmanager
    async def raw(self, user: str = BOSS) -> AsyncGenerator[Any]:
        """A plain connection to Redis, of a user or of him who may do anything."""
        url = f"redis://{BOSS}:{SECRET}@127.0.0.1:{self.redis.port}/0"
        if user != BOSS:
            url = (access.redis_url(environ=self.environ(user)) or "").partition("?")[0]
        async with clients.make(url, 5.0) as client:
            yield client


def provision(home: Path, *words: str, nats_port: int = 4222, redis_port: int = 6379) -> None:
    """Run the command; the ports are those that the users will find."""
    environ = {
        "FLIGHTLOG_NATS_URL": f"nats://127.0.0.1:{nats_port}",
        "FLIGHTLOG_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
    }
    subprocess.run(
        [*PROGRAM, "provision", *words, "--output", home],
        check=True,
        capture_output=True,
        env={**os.environ, **environ},
    )


@dataclass(frozen=True)
class Walled(Valkey):
    """A Valkey whose users come from an ACL file, in which nobody is let in without a name."""

    def answers(self, endpoint: Endpoint) -> bool:
        """Whether it takes the boss's requests."""
        try:
            with Redis(port=endpoint.port, username=BOSS, password=SECRET) as client:
                return bool(client.ping())
        except RedisError:
            return False


@contextmanager
def running(home: Path, *asked: tuple[str, ...]) -> Generator[Handed]:
    """Servers with an account for each `asked`, the options of its `flightlog provision`.

    Where they run is known only once they do, with what was made before: what is made again then
    must have the same secrets.
    """
    made, users = home / "made", home / "made" / "redis" / "users.acl"
    users.parent.mkdir(parents=True)
    users.write_text(f"user {BOSS} on >{SECRET} ~* &* +@all\n")
    for words in asked:
        provision(made, *words)
    for path in (made / "nats").glob("*.conf"):
        boss = f'users: [\n  {{ user: "{path.stem}-{BOSS}", password: "{SECRET}" }}'
        path.write_text(path.read_text().replace("users: [", boss))
    nats = Server(Nats(access='include "../made/nats/accounts.conf"'), home / "nats")
    cache = Server(Walled(extra=f"aclfile {users}"), home / "valkey")
    with ExitStack() as stack:
        for server in (nats, cache):
            stack.callback(server.kill)
            server.start()
        for words in asked:
            provision(made, *words, nats_port=nats.port, redis_port=cache.port)
        yield Handed(made, nats, cache)
