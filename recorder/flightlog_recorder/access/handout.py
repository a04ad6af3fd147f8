"""What `flightlog provision --output` leaves: settings for the servers, and files for each user.

    nats/accounts.conf     for nats-server to include: every account that was made here
    nats/<account>.conf    users, what proves who they are, permissions
    redis/users.acl        Redis' users, for `aclfile`
    users/<account>/<user> nats-url, redis-url, the secrets in them, and env: what to set for it

Made again it is the same: secrets stay, and so do other accounts. All of it is its owner's alone.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from flightlog import FlightlogError
from flightlog_recorder import private
from flightlog_recorder.access import accounts, conf, rights
from flightlog_recorder.access.accounts import Account, Nkey, Password, Proof, User
from flightlog_recorder.access.keyring import NKEY, Keyring
from flightlog_recorder.access.role import EVERY_TENANT

Means = Literal["password", "nkey"]

_INCLUDED = Path("accounts.conf")
_NATS_PASSWORD, _NATS_URL = "nats-password", "nats-url"
_REDIS_PASSWORD, _REDIS_URL = "redis-password", "redis-url"


class NameTaken(FlightlogError):
    """A name is another's: on one server, users and accounts need names of their own."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"no use of the name {name}: {why}; choose another tenant or account")


class Servers(Struct, frozen=True):
    """Where the users will find NATS (several with commas) and Redis."""

    nats: str
    redis: str


class Handout:
    """The directory `home`, for users who prove themselves to NATS by these means."""

    def __init__(self, home: Path, servers: Servers, means: Means = "password") -> None:
        self._servers = servers
        self._means: Means = means
        self.users, self.nats, self.redis = home / "users", home / "nats", home / "redis"

    def give(self, account: Account) -> None:
        """Write all that concerns the account and the doctor.

        Raises `NameTaken` when another account here has such a user, and `CredentialsUnusable`.
        """
        self._refuse_doubles(account)
        private.directory(self.nats)
        private.directory(self.redis)
        both = (account, accounts.system())
        for each in both:
            self._account(each)
        self._include()
        lines = [line for each in both for user in each.users for line in self._redis(each, user)]
        self._acl(lines)
        for each in both:
            for user in each.users:
                self._user(each, user)

    def ring(self, account: Account) -> Keyring:
        """The secrets of an account's users."""
        return Keyring(self.users / account.name)

    def _refuse_doubles(self, account: Account) -> None:
        """A user's name says who he is on a whole server, whatever account he is in."""
        if account.name in (accounts.SYSTEM, _INCLUDED.stem):
            raise NameTaken(account.name, "it is kept for the servers' own")
        for user in account.users:
            for other in self.users.glob(f"*/{user.name}"):
                if other.parent.name != account.name:
                    raise NameTaken(user.name, f"a user of account {other.parent.name} has it")

    def _account(self, account: Account) -> None:
        proofs = {user.name: self._proof(account, user) for user in account.users}
        text = conf.render(accounts.settings(account, proofs))
        private.write(self.nats / f"{account.name}.conf", text.encode())

    def _proof(self, account: Account, user: User) -> Proof:
        ring = self.ring(account)
        if self._by(account, user) == "nkey":
            return Nkey(ring.nkey(user.name))
        return Password(ring.password(user.name, _NATS_PASSWORD))

    def _by(self, account: Account, user: User) -> Means:
        """What the user proves itself by; the doctor serves all accounts and keeps his."""
        if account.name != accounts.SYSTEM:
            return self._means
        home = self.ring(account).of(user.name)
        if (home / _NATS_PASSWORD).exists():
            return "password"
        return "nkey" if (home / NKEY).exists() else self._means

    def _include(self) -> None:
        """The accounts that are here, ours and those made before; paths are relative to a file."""
        made = sorted(each.stem for each in self.nats.glob("*.conf") if each.name != str(_INCLUDED))
        blocks = "".join(f'  {name} {{ include "{name}.conf" }}\n' for name in made)
        text = f"accounts {{\n{blocks}}}\nsystem_account: {accounts.SYSTEM}\n"
        private.write(self.nats / _INCLUDED, text.encode())

    def _redis(self, account: Account, user: User) -> list[str]:
        found = rights.rights(user.role, tenant=user.tenant, prefix=account.keys)
        if found is None:
            return []
        password = self.ring(account).password(user.name, _REDIS_PASSWORD)
        cluster = "+cluster" in urlsplit(self._servers.redis).scheme
        return [rights.line(user.name, password, found, cluster=cluster)]

    def _acl(self, lines: Sequence[str]) -> None:
        path = self.redis / "users.acl"
        before = path.read_text() if path.exists() else ""
        private.write(path, rights.merged(before, lines).encode())

    def _user(self, account: Account, user: User) -> None:
        ring, name = self.ring(account), user.name
        home = ring.of(name).resolve()
        told = {"FLIGHTLOG_NATS_URL": self._servers.nats}
        if tenant := _tenant(account, user):
            told["FLIGHTLOG_TENANT"] = tenant
        if self._by(account, user) == "nkey":
            told["FLIGHTLOG_NATS_NKEY"] = str(home / NKEY)
            told["FLIGHTLOG_NATS_INBOX_PREFIX"] = user.inbox
            ring.write(name, _NATS_URL, self._servers.nats)
        else:  # a file of its own is read again at each connect, so that it can change meanwhile
            told["FLIGHTLOG_NATS_USER"] = name
            told["FLIGHTLOG_NATS_PASSWORD_FILE"] = str(home / _NATS_PASSWORD)
            password = ring.password(name, _NATS_PASSWORD)
            ring.write(name, _NATS_URL, as_user(self._servers.nats, name, password))
        if rights.rights(user.role, tenant=user.tenant) is not None:
            told["FLIGHTLOG_REDIS_URL_FILE"] = str(home / _REDIS_URL)
            password = ring.password(name, _REDIS_PASSWORD)
            url = as_user(self._servers.redis, name, password)
            ring.write(name, _REDIS_URL, f"{url}?prefix={account.keys}")
        ring.write(name, "env", _assignments(told))


def _tenant(account: Account, user: User) -> str:
    """Whose sessions a command of the user means; a service means all."""
    known = dict.fromkeys(each.tenant for each in account.users if each.tenant != EVERY_TENANT)
    return next(iter(known), "") if user.tenant == EVERY_TENANT else user.tenant


def as_user(urls: str, user: str, password: str) -> str:
    """URLs, several with commas, with this user in them instead of whom they named."""
    return ",".join(_with(each.strip(), f"{user}:{password}@") for each in urls.split(","))


def bare(urls: str, *, scheme: str) -> str:
    """URLs without who one is, and without query; those without a scheme get this one."""
    each = (url.strip() for url in urls.split(","))
    return ",".join(_with(url if "://" in url else f"{scheme}://{url}", "") for url in each)


def _with(url: str, user: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{user}{host}{parts.path}"


def _assignments(variables: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
