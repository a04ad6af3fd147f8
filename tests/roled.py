"""A NATS server whose users have the permissions of our roles, and what each of them did."""

import json
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flightlog import connect
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import connect_bare, create_streams
from flightlog.log import Log
from flightlog.wire import subject as names
from flightlog_recorder.access import accounts, conf
from flightlog_recorder.access.accounts import Account, User
from flightlog_recorder.access.role import Role
from flightlog_recorder.embedded import Server
from tests.cluster import Cluster
from tests.conftest import MakeNats

PASSWORD = "a-password-of-the-tests"
_VIOLATION = re.compile(r'/user:([^"]*)" - (Publish|Subscription) Violation - .*?Subject "([^"]*)"')
_ASKED = re.compile(r'/user:([^"]*)" - <<- \[(PUB|HPUB|SUB) (\S+) ')


@dataclass(frozen=True)
class Roled:
    """The server, its accounts, and a boss in each who may do anything."""

    server: Server
    accounts: Sequence[Account]

    def url(self, user: str) -> str:
        """What a user of ours, or `<account>-boss`, connects to."""
        return f"nats://{user}:{PASSWORD}@127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def log(self, user: str, *, tenant: str, redis: str | None = None) -> AsyncGenerator[Log]:
        """A user's connection to a tenant's log."""
        url = self.url(user)
        async with connect(nats=url, redis=redis, tenant=tenant, provision=False) as log:
            yield log

    async def make_streams(self, *, streams: int = 1) -> None:
        """Make the streams of every account."""
        for account in self.accounts:
            async with await connect_bare(self.url(f"{account.name}-boss")) as bus:
                await create_streams(bus, streams=streams)

    async def notice(self, account: str, tenant: str, session: str) -> None:
        """Announce something of a session, as services do."""
        async with await connect_bare(self.url(f"{account}-boss")) as bus:
            await bus.request(names.notice_subject(tenant, session), b"{}")

    def did(self, user: str) -> "Did":
        """What the user has done so far, as the server saw it."""
        said, found = self.server.log.read_text(errors="replace"), Did()
        for who, verb, subject in _ASKED.findall(said):
            if who == user:
                (found.subscribed if verb == "SUB" else found.published).add(subject)
        found.refused += refusals(self.server.log, user)
        return found


def refusals(log: Path, user: str) -> list[tuple[str, str]]:
    """What the user was refused, as the server's log has it: Publish or Subscription, and where."""
    said = log.read_text(errors="replace")
    return [(verb, to) for who, verb, to in _VIOLATION.findall(said) if who == user]


@dataclass
class Did:
    """The subjects that a user published and subscribed to, and what it was refused."""

    published: set[str] = field(default_factory=set[str])
    subscribed: set[str] = field(default_factory=set[str])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def unused(self, account: Account, user: User) -> list[str]:
        """Which of its permissions it made no use of."""
        allowed = account.permissions(user)
        idle = _unmatched(allowed.publish, self.published)
        return idle + _unmatched(allowed.subscribe, self.subscribed)


def _unmatched(patterns: Iterable[str], subjects: set[str]) -> list[str]:
    return [each for each in patterns if not any(map(_matcher(each), subjects))]


def _matcher(pattern: str) -> Callable[[str], bool]:
    tokens = [r"[^.]+" if token == "*" else re.escape(token) for token in pattern.split(".")]
    text = r"\.".join(tokens).replace(r"\.>", r"\..+")
    return lambda subject: re.fullmatch(text, subject) is not None


def start(make_nats: MakeNats, *found: Account) -> Roled:
    """A server with these accounts and that of the system, which writes down what it is asked."""
    told = access(*found, accounts.system())
    traced = "trace: true\nmax_traced_msg_len: 64"
    return Roled(make_nats(access=told, extra=traced), found)


def access(*found: Account) -> str:
    """The server's settings: these accounts, a boss in each, and everybody's password."""
    blocks = {each.name: _with_boss(each) for each in found}
    variables = [user.variable for account in found for user in account.users]
    rows = [f"{name}: {json.dumps(PASSWORD)}" for name in variables]
    return "\n".join([*rows, conf.render({"accounts": blocks, "system_account": accounts.SYSTEM})])


def _with_boss(account: Account) -> dict[str, conf.Conf]:
    block = accounts.settings(account, {})
    boss = {"user": f"{account.name}-boss", "password": PASSWORD}
    return {**block, "users": [*block["users"], boss]}  # type: ignore[misc]


def user(account: Account, role: Role) -> User:
    """The account's first user of this role."""
    return next(user for user in account.users if user.role == role)


@contextmanager
def on_cluster(
    home: Path, account: Account, *, extra: dict[str, str] | None = None
) -> Generator[Cluster]:
    """Three nodes with these users and a system account; `extra` settings by node."""
    nodes = Cluster(home, access=access(account, accounts.system()), extra=extra)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.kill()


def of_cluster(cluster: Cluster, user: str) -> NatsAccess:
    """How a user of ours, or `<account>-boss`, gets to a cluster."""
    return NatsAccess(url=cluster.url, user=user, password=PASSWORD)


async def make_streams(cluster: Cluster, boss: str, *, streams: int = 1, replicas: int = 3) -> None:
    """Make the streams of an account on a cluster."""
    async with await connect_bare(of_cluster(cluster, boss)) as bus:
        await create_streams(bus, streams=streams, replicas=replicas)
