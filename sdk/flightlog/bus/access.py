"""How a program reaches NATS: which servers, as whom, and what proves it. For every program alike.

Taken from arguments, from `FLIGHTLOG_NATS_*`, and from a context of the `nats` command (ADR-21),
the earlier before the later.
"""

import importlib.util
import os
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from flightlog.errors import CredentialsUnusable

DEFAULT_URL = "nats://127.0.0.1:4222"
PREFIX = "FLIGHTLOG_NATS_"
SYSTEM_PREFIX = "FLIGHTLOG_SYSTEM_NATS_"
CONTEXT = f"{PREFIX}CONTEXT"
_IN_FILES = ("url", "user", "password", "token")  # each may come as <NAME>_FILE, as secrets do
_REDIS = "FLIGHTLOG_REDIS_URL"
_DEFAULT_INBOX = "_INBOX"
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")

Secret = str | Callable[[], str]


class _Told(Struct, frozen=True, kw_only=True):
    """What arguments, the environment and a context of the `nats` command all tell by one name."""

    url: str = ""
    user: str = ""
    creds: str = ""
    nkey: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    tls_first: bool = False
    inbox_prefix: str = ""


class NatsAccess(_Told, frozen=True, kw_only=True):
    """The servers (`url`, several with commas) and at most one proof of who we are.

    A proof is user and password, a token, or the path of a creds file (JWT) or of an nkey seed;
    `ca` is the file of the authority that signed the servers' certificates, `cert` and `key` our
    own. Password and token may be functions, called at each connect, so that they can change.
    `inbox_prefix` is where answers arrive: `_INBOX.<user>` for a user with a password, else
    `_INBOX`. Files are read at each connect.
    """

    password: Secret = ""
    token: Secret = ""

    def __repr__(self) -> str:
        return f"NatsAccess({', '.join(self.servers)})"

    @property
    def servers(self) -> list[str]:
        """The servers' addresses without what is secret in them."""
        return [each.strip().rsplit("@", 1)[-1] for each in (self.url or DEFAULT_URL).split(",")]

    @property
    def inbox(self) -> str:
        """The prefix of the subjects that answers arrive on."""
        user = self.user or _user_of(self.url)
        own = f"{_DEFAULT_INBOX}.{user}" if _TOKEN.fullmatch(user) else _DEFAULT_INBOX
        return self.inbox_prefix or own


VARIABLES = frozenset(
    [f"{PREFIX}{name.upper()}" for name in NatsAccess.__struct_fields__]
    + [f"{PREFIX}{name.upper()}_FILE" for name in _IN_FILES]
    + [CONTEXT, _REDIS, f"{_REDIS}_FILE"]
)


def resolve(
    given: "str | NatsAccess | None" = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> NatsAccess:
    """What is given, the context, the environment and the context that it names make together.

    The earlier come before the later; what proves who we are is taken from one of them as a whole,
    never mixed. Raises `CredentialsUnusable`.
    """
    env = os.environ if environ is None else environ
    if isinstance(given, NatsAccess):
        return given
    found = NatsAccess(url=given or "")
    if context:
        found = _over(found, read_context(context, environ=env))
    found = _over(found, _from_environment(env))
    named = None if context else env.get(CONTEXT)
    return _over(found, read_context(named, environ=env)) if named else found


def system(
    main: NatsAccess,
    given: str | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> NatsAccess | None:
    """How to reach the system account: as `resolve`, from `FLIGHTLOG_SYSTEM_NATS_*`.

    The servers, and the authority of their certificates, are those of `main` unless others are
    named. None if nothing is named at all. Raises `CredentialsUnusable`.
    """
    env = os.environ if environ is None else environ
    own = {name: value for name, value in env.items() if not name.startswith(PREFIX)}
    own |= {
        f"{PREFIX}{name.removeprefix(SYSTEM_PREFIX)}": value
        for name, value in env.items()
        if name.startswith(SYSTEM_PREFIX)
    }
    found = resolve(given, context=context, environ=own)
    if found == NatsAccess():
        return None
    servers = ",".join(map(_without_secret, (main.url or DEFAULT_URL).split(",")))
    shared = NatsAccess(url=servers, ca=main.ca, tls_first=main.tls_first)
    return _over(found, shared)


def _without_secret(url: str) -> str:
    scheme, mark, rest = url.strip().rpartition("://")
    return f"{scheme}{mark}{rest.rsplit('@', 1)[-1]}"


def _over(first: NatsAccess, second: NatsAccess) -> NatsAccess:
    """The first's fields where it has any; the second's proof only if the first brings none."""
    own = {name: value for name, value in asdict(first).items() if value}
    rest = asdict(second)
    if "@" in first.url or any(own.get(name) for name in _PROOF):
        rest = {name: value for name, value in rest.items() if name not in _PROOF}
    return NatsAccess(**rest | own)


_PROOF = ("user", "password", "token", "creds", "nkey")


def _from_environment(env: Mapping[str, str]) -> NatsAccess:
    found: dict[str, Any] = {}
    for name in NatsAccess.__struct_fields__:
        variable = f"{PREFIX}{name.upper()}"
        if env.get(variable):
            found[name] = env[variable]
        elif name in _IN_FILES and (path := env.get(f"{variable}_FILE")):
            found[name] = _secret(name, path)
    if "tls_first" in found:
        found["tls_first"] = found["tls_first"].lower() in ("1", "true", "yes")
    return NatsAccess(**found)


def _secret(name: str, path: str) -> Secret:
    """What the file holds now; for what proves who we are, what it holds whenever we connect."""
    variable = f"{PREFIX}{name.upper()}_FILE"
    text = read_secret(path, variable=variable)
    return text if name in ("url", "user") else lambda: read_secret(path, variable=variable)


def read_secret(path: str, *, variable: str) -> str:
    """A secret from its file, without the white space around it; `variable` is for errors."""
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise CredentialsUnusable(f"the file that {variable} names cannot be read") from exc
    if not text:
        raise CredentialsUnusable(f"the file that {variable} names is empty")
    return text


def redis_url(given: str | None = None, *, environ: Mapping[str, str] | None = None) -> str | None:
    """The URL of Redis: what is given, `FLIGHTLOG_REDIS_URL`, or what the file it names holds."""
    env = os.environ if environ is None else environ
    path = env.get(f"{_REDIS}_FILE")
    told = given or env.get(_REDIS)
    return told or (read_secret(path, variable=f"{_REDIS}_FILE") if path else None)


class _Context(_Told, frozen=True, kw_only=True):
    """A context file of the `nats` command, as far as it concerns a client."""

    password: str = ""
    token: str = ""
    user_jwt: str = ""
    jetstream_domain: str = ""
    jetstream_api_prefix: str = ""
    socks_proxy: str = ""


_NOT_SPOKEN = ("user_jwt", "jetstream_domain", "jetstream_api_prefix", "socks_proxy")


def read_context(name: str, *, environ: Mapping[str, str] | None = None) -> NatsAccess:
    """The context that `nats context save NAME` wrote. Raises `CredentialsUnusable`."""
    env = os.environ if environ is None else environ
    if Path(name).name != name:
        raise CredentialsUnusable("a context is named by one word, not by a path")
    home = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".config")
    path = Path(home) / "nats" / "context" / f"{name}.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Context)
    except OSError as exc:
        raise CredentialsUnusable(f"there is no nats context {name}: nats context ls") from exc
    except msgspec.MsgspecError as exc:
        raise CredentialsUnusable(f"the file of nats context {name} cannot be read") from exc
    if asked := [each for each in _NOT_SPOKEN if getattr(found, each)]:
        raise CredentialsUnusable(f"nats context {name} asks for {asked[0]}, which is not spoken")
    fields: dict[str, Any] = {each: getattr(found, each) for each in NatsAccess.__struct_fields__}
    for each in ("creds", "nkey", "ca", "cert", "key"):
        fields[each] = _expanded(fields[each], env)
    return NatsAccess(**fields)


def _expanded(path: str, env: Mapping[str, str]) -> str:
    home = env.get("HOME", "~")
    return path.replace("~", home, 1) if path.startswith("~/") else path


def options(access: NatsAccess) -> dict[str, Any]:
    """What nats-py's `connect` takes for it. Raises `CredentialsUnusable`."""
    _check(access)
    found: dict[str, Any] = {
        "servers": [each.strip() for each in (access.url or DEFAULT_URL).split(",")],
        "inbox_prefix": access.inbox,
        "tls_handshake_first": access.tls_first,
        "user": access.user or None,
        "password": access.password or None,
        "token": access.token or None,
        "user_credentials": access.creds or None,
        "nkeys_seed": access.nkey or None,
        "tls": _tls(access),
    }
    return {name: value for name, value in found.items() if value is not None}


def _check(access: NatsAccess) -> None:
    proofs = [each for each in ("user", "token", "creds", "nkey") if getattr(access, each)]
    if len(proofs) > 1:
        raise CredentialsUnusable(f"give one proof of who we are, not {' and '.join(proofs)}")
    if bool(access.user) != bool(access.password):
        raise CredentialsUnusable("user and password are given together, or neither")
    if bool(access.cert) != bool(access.key):
        raise CredentialsUnusable("cert and key are given together, or neither")
    for name in ("creds", "nkey", "ca", "cert", "key"):
        if (path := getattr(access, name)) and not os.access(path, os.R_OK):
            raise CredentialsUnusable(f"the file that {PREFIX}{name.upper()} names cannot be read")
    if (access.creds or access.nkey) and importlib.util.find_spec("nkeys") is None:
        raise CredentialsUnusable("nkeys and creds need: pip install 'flightlog[nkeys]'")


def _tls(access: NatsAccess) -> ssl.SSLContext | None:
    if not (access.ca or access.cert):
        return None
    try:
        context = ssl.create_default_context(cafile=access.ca or None)
        if access.cert:
            context.load_cert_chain(access.cert, access.key)
    except (ssl.SSLError, OSError) as exc:
        raise CredentialsUnusable("the certificates or their key cannot be used") from exc
    return context


def _user_of(url: str) -> str:
    """The user that a URL names with a password; a name alone is a token, and a secret."""
    found = urlsplit(url.split(",", 1)[0].strip())
    return found.username or "" if found.password is not None else ""
