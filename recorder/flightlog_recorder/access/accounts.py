"""An account of NATS for tenants that share no trust, and the users in it. Pure.

The tenants of one account are kept apart by permissions alone, and its services see all of them;
two accounts share nothing: the same subjects and streams exist in each.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from flightlog.wire import subject as names
from flightlog_recorder.access.conf import Conf, Variable
from flightlog_recorder.access.role import (
    EVERY_TENANT,
    Permissions,
    Role,
    Scope,
    inbox_prefix,
    permissions,
)

Proof = Literal["password", "nkey"]

SYSTEM = "SYS"
SERVICES: tuple[Role, ...] = ("projector", "recorder", "operator")  # of all tenants in the account


class User(Struct, frozen=True):
    """A user of an account: its name, its role, and the tenant whose sessions it has to do with.

    A subscriber is a user for each name it goes by.
    """

    name: str
    role: Role
    tenant: str = EVERY_TENANT
    subscription: str = ""

    @property
    def inbox(self) -> str:
        """The prefix of the only subjects that it may receive answers on."""
        return inbox_prefix(self.name)

    @property
    def variable(self) -> str:
        """The variable that stands for its password in the server's settings."""
        return f"FLIGHTLOG_PASSWORD_{self.name.replace('-', '_')}"


class Account(Struct, frozen=True):
    """An account: its users, what it may store (bytes; 0 for as much as there is), its streams."""

    name: str
    users: tuple[User, ...]
    max_file: int = 0
    streams: int = 1
    prefix: str = names.PREFIX

    def permissions(self, user: User) -> Permissions:
        """What the user may publish to and subscribe to."""
        return permissions(
            user.role,
            Scope(
                user.name,
                tenant=user.tenant,
                subscription=user.subscription,
                streams=self.streams,
                prefix=self.prefix,
            ),
        )


def of_tenants(
    name: str,
    tenants: Sequence[str],
    *,
    subscribers: Sequence[str] = (),
    streams: int = 1,
    max_file: int = 0,
    prefix: str = names.PREFIX,
) -> Account:
    """An account for tenants that trust each other: a harness each, and one user a service."""
    users = [User(f"{tenant}-harness", "harness", tenant) for tenant in tenants]
    users += [
        User(f"{tenant}-subscriber-{each}", "subscriber", tenant, each)
        for tenant in tenants
        for each in subscribers
    ]
    users += [User(f"{name}-{role}", role) for role in SERVICES]
    return Account(name, tuple(users), max_file, streams, prefix)


def system() -> Account:
    """The account of the servers themselves, with the one user that `flightlog doctor` needs."""
    return Account(SYSTEM, (User("doctor", "doctor"),))


def settings(account: Account, keys: Mapping[str, str]) -> dict[str, Conf]:
    """The account's block in nats-server's `accounts`; `keys` are public nkeys by user name.

    A user without a key proves itself by a password, which is not here: a variable stands for it.
    """
    users = [_user(account, user, keys.get(user.name)) for user in account.users]
    found: dict[str, Conf] = {"users": users}
    if account.name != SYSTEM:
        found = {"jetstream": {"max_file": account.max_file or -1}} | found
    return found


def _user(account: Account, user: User, key: str | None) -> Conf:
    allowed = grants(account.permissions(user))
    if key is not None:
        return {"nkey": key, "permissions": allowed}
    proof: dict[str, Conf] = {"user": user.name, "password": Variable(user.variable)}
    return proof | {"permissions": allowed}


def grants(found: Permissions) -> Conf:
    """Permissions as nats-server's settings and its Helm chart's values write them."""
    publish: dict[str, Conf] = {"allow": list(found.publish)}
    if found.deny:
        publish["deny"] = list(found.deny)
    return {"publish": publish, "subscribe": {"allow": list(found.subscribe)}}
