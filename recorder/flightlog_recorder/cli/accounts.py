"""`flightlog provision --tenant` and `--print-accounts`: accounts to set the servers up with.

Nothing is connected to: what is printed and written is for whoever runs NATS and Redis.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from flightlog.bus.access import DEFAULT_URL
from flightlog.wire import subject as names
from flightlog_recorder.access import accounts, conf, handout
from flightlog_recorder.access.accounts import Account
from flightlog_recorder.access.handout import Handout, Means, Servers
from flightlog_recorder.cli.output import Usage, plural, say, show_json
from flightlog_recorder.cli.target import Target
from flightlog_recorder.provision import Wish

DEFAULT_REDIS = "redis://127.0.0.1:6379/0"
_SIZE = re.compile(r"([0-9]+) ?([KMGT]i?B?)?")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Asked(Struct, frozen=True):
    """Whom an account is for: tenants that trust each other, and the names of subscribers."""

    tenants: Sequence[str]
    name: str | None = None
    subscribers: Sequence[str] = ()
    means: Means = "password"


def size(text: str) -> int:
    """`20GiB`, `20G` or bytes. Raises `Usage`."""
    found = _SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise Usage("a size is a number of bytes, or such as 500MiB or 20GiB")
    return int(found[1]) << _SHIFTS[(found[2] or "")[:1]]


def account_of(asked: Asked, wish: Wish) -> Account:
    """The account; what it may store follows from what its streams may."""
    streams, tenants = wish.streams or 1, [names.token("tenant", each) for each in asked.tenants]
    most = wish.max_bytes
    limit = accounts.room_for(most, streams=streams, replicas=wish.replicas or 1) if most else 0
    return accounts.of_tenants(
        names.token("account", asked.name or tenants[0]),
        tenants,
        subscribers=[names.token("subscriber", each) for each in asked.subscribers],
        streams=streams,
        max_file=limit,
        prefix=wish.prefix,
    )


def show(account: Account, *, json: bool) -> None:
    """Print the account and that of the doctor; passwords stay variables."""
    found = [account, accounts.system()]
    if json:
        show_json(
            {user.name: accounts.grants(a.permissions(user)) for a in found for user in a.users}
        )
        return
    blocks = {each.name: accounts.settings(each, {}) for each in found}
    say(conf.render({"accounts": blocks, "system_account": accounts.SYSTEM}).rstrip())


def write(
    where: Target, account: Account, home: Path, asked: Asked, wish: Wish, *, json: bool
) -> None:
    """Write the account, its users' secrets and Redis' users, and say what to do with them."""
    nats = handout.bare(where.nats.url or DEFAULT_URL, scheme="nats")
    servers = Servers(nats, handout.bare(where.redis or DEFAULT_REDIS, scheme="redis"))
    given = Handout(home, servers, asked.means)
    given.give(account)
    if json:
        show_json({user.name: str(given.ring(account).of(user.name)) for user in account.users})
        return
    _tell(given, account, wish)


def _tell(given: Handout, account: Account, wish: Wish) -> None:
    operator = next(user.name for user in account.users if user.role == "operator")
    env = given.ring(account).of(operator) / "env"
    wanted = {"streams": wish.streams, "replicas": wish.replicas, "max-bytes": wish.max_bytes}
    options = "".join(f" --{name} {value}" for name, value in wanted.items() if value)
    say("account  ", f"{account.name}: {plural(len(account.users), 'user')}")
    say("users    ", f"{env.parents[1]}/USER: nats-url, redis-url, env")
    say("NATS     ", f"{given.nats}: include accounts.conf in the server's settings, then reload")
    say("Redis    ", f"{given.redis / 'users.acl'}: name it as aclfile, then ACL LOAD")
    say("streams  ", f"(set -a; . {env}; flightlog provision{options})")
