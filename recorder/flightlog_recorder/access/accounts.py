"""An account of NATS for tenants that share no trust, and the users in it. Pure.

The tenants of one account are kept apart by permissions alone, and its services see all of them;
two accounts share nothing: the same subjects and streams exist in each.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from flightlog.cache import place
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

SYSTEM = "SYS"
SERVICES: tuple[Role, ...] = ("projector", "recorder", "operator", "admin")  # of all tenants
_ROOM = 5 / 4  # of what the streams may hold: tombstones, inboxes, dead letters, what raises them


class Password(Struct, frozen=True):
    """What a user proves itself by, as the server has to know it."""

    text: str


class Nkey(Struct, frozen=True):
    """The public key of what a user proves itself by: no secret."""

    public: str


Proof = Password | Nkey


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

    @property
    def keys(self) -> str:
        """What its keys begin with in a Redis that it shares with other accounts."""
        return f"{place.PREFIX}.{self.name}"

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
    """An account for tenants that trust each other: a harness each, and one user a service.

    Beside them one, `admin`, that may do anything in the account: for people, never for a service.
    """
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


def room_for(max_bytes: int, *, streams: int, replicas: int) -> int:
    """What an account may store whose logs and blobs hold `max_bytes` each, in bytes.

    Each replica counts; it is more than they hold, so that the recorder alone can raise one.
    """
    return int(max_bytes * (streams + 1) * replicas * _ROOM)


def settings(account: Account, proofs: Mapping[str, Proof]) -> dict[str, Conf]:
    """The account's block in nats-server's `accounts`; `proofs` are by user name.

    A user without one proves itself by a password that is not here: a variable stands for it.
    """
    users = [_user(account, user, proofs.get(user.name)) for user in account.users]
    found: dict[str, Conf] = {"users": users}
    if account.name != SYSTEM:
        found = {"jetstream": {"max_file": account.max_file or -1}} | found
    return found


def _user(account: Account, user: User, proof: Proof | None) -> Conf:
    return _shown(user, proof) | {"permissions": grants(account.permissions(user))}


def _shown(user: User, proof: Proof | None) -> dict[str, Conf]:
    match proof:
        case Nkey(public):
            return {"nkey": public}
        case Password(text):
            return {"user": user.name, "password": text}
        case None:
            return {"user": user.name, "password": Variable(user.variable)}


def grants(found: Permissions) -> Conf:
    """Permissions as nats-server's settings and its Helm chart's values write them."""
    publish: dict[str, Conf] = {"allow": list(found.publish)}
    if found.deny:
        publish["deny"] = list(found.deny)
    return {"publish": publish, "subscribe": {"allow": list(found.subscribe)}}
