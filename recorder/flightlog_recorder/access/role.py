"""Roles as data: the subjects of NATS that each may publish to and subscribe to. Pure.

Each list was made by running the role's whole work on a real server, and is held to it by
tests/system/test_roles.py: nothing is missing, and nothing is there that the work does not use.
An admin, whose work is whatever no role does, is bounded by its account alone.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from flightlog.wire import layout
from flightlog.wire import subject as names
from flightlog.wire.layout import (
    BLOB_STREAM,
    DEAD_STREAM,
    INBOX_STREAM,
    KEYS_STREAM,
    NOTICE_STREAM,
)

Role = Literal["harness", "subscriber", "projector", "recorder", "operator", "admin", "doctor"]

ROLES: tuple[Role, ...] = (
    "harness",
    "subscriber",
    "projector",
    "recorder",
    "operator",
    "admin",
    "doctor",
)
SYSTEM_REQUEST = "$SYS.REQ.SERVER.PING.VARZ"  # the one that shows `sync_always`, asked of each node
OWN_PERMISSIONS = "$SYS.REQ.USER.INFO"
EVERY_TENANT = "*"
_API = "$JS.API"
_EVERYTHING = (">",)
_SIDE = (INBOX_STREAM, NOTICE_STREAM, BLOB_STREAM, DEAD_STREAM)  # beside logs; purged with them


class Permissions(Struct, frozen=True):
    """What a user may publish to and subscribe to; `deny` overrides what `publish` allows."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny: tuple[str, ...] = ()


class Scope(Struct, frozen=True):
    """Whose sessions, in which streams, under which names: what permissions are made for.

    `user` names the reply subjects that are the user's own, `_INBOX.<user>.>`; `tenant` may be
    `EVERY_TENANT`; `subscription` is the name that a subscriber goes by.
    """

    user: str
    tenant: str = EVERY_TENANT
    subscription: str = ""
    streams: int = 1
    prefix: str = names.PREFIX

    @property
    def logs(self) -> list[str]:
        """The names of the log streams."""
        return [f"{layout.STREAM_PREFIX}{number}" for number in range(self.streams)]


def inbox_prefix(user: str) -> str:
    """Where a user's answers arrive; nobody else in the account may listen there."""
    return f"_INBOX.{user}"


def permissions(role: Role, scope: Scope) -> Permissions:
    """What the role may do in its account; the doctor's are those in the system account."""
    match role:
        case "harness":
            return _harness(scope)
        case "subscriber":
            return _subscriber(scope)
        case "projector":
            return _projector(scope)
        case "recorder":
            return _recorder(scope)
        case "operator":
            return _operator(scope)
        case "admin":  # backup, restore, edit: the account's walls are what holds him
            return Permissions(_EVERYTHING, _EVERYTHING)
        case "doctor":
            return Permissions((SYSTEM_REQUEST,), (_answers(scope),))


def _harness(scope: Scope) -> Permissions:
    """Appends to its tenant's sessions and reads the account's; what it is told it only reads."""
    at, tenant = scope.prefix, scope.tenant
    return Permissions(
        publish=(
            *_always(),
            *_stores(scope),
            f"{at}.alive.{tenant}",
            f"{at}.progress.{tenant}.*",
            *_reads([*scope.logs, BLOB_STREAM]),
            *_api("DIRECT.GET", [INBOX_STREAM, KEYS_STREAM]),
        ),
        subscribe=(
            _answers(scope),
            f"{at}.*.{tenant}.*.live",
            f"{at}.inbox.{tenant}.*.*",
            f"{at}.alive.{tenant}",
            f"{at}.progress.{tenant}.*",
        ),
        deny=_inbox_is_no_slot(scope),
    )


def _stores(scope: Scope) -> list[str]:
    """What sessions are made of: events, blobs, keys."""
    at, tenant = scope.prefix, scope.tenant
    return [
        f"{at}.*.{tenant}.*.live",
        f"{at}.*.{tenant}.*.base",
        f"{at}.blob.{tenant}.*.*",
        f"$KV.{names.KEYS_BUCKET}.{tenant}.*",
    ]


def _inbox_is_no_slot(scope: Scope) -> tuple[str, ...]:
    """`<prefix>.inbox.<tenant>.<session>.live` reads like a log's subject: an id may be `live`."""
    return (f"{scope.prefix}.inbox.>",)


def _projector(scope: Scope) -> Permissions:
    return Permissions(
        publish=(
            *_always(),
            *_reads(scope.logs),
            *_api("STREAM.INFO", scope.logs),
            *(each for stream in scope.logs for each in _consumes(stream, "projector")),
        ),
        subscribe=(_answers(scope),),
    )


def _consumes(stream: str, durable: str, filter: str = "") -> list[str]:
    """One durable consumer; a filter is part of the request, so that no other can be made."""
    made = ".".join(["CONSUMER.CREATE", stream, durable, *([filter] if filter else [])])
    asked = [f"CONSUMER.{verb}.{stream}.{durable}" for verb in ("INFO", "MSG.NEXT")]
    return [*(f"{_API}.{each}" for each in (made, *asked)), f"$JS.ACK.{stream}.{durable}.>"]


def _subscriber(scope: Scope) -> Permissions:
    """Consumes its tenant's live events and notices, and keeps dead letters, under its own name."""
    at, tenant, name = scope.prefix, scope.tenant, scope.subscription
    durable, letters = names.durable(tenant, name), f"{at}.dead.{tenant}.{name}.*.*"
    filters = dict.fromkeys(scope.logs, names.live_filter(tenant, prefix=at))
    filters |= {NOTICE_STREAM: f"{at}.notice.{tenant}.*", DEAD_STREAM: letters}
    return Permissions(
        publish=(
            *_always(),
            letters,
            *_reads([*filters, BLOB_STREAM]),
            *(each for stream, to in filters.items() for each in _consumes(stream, durable, to)),
        ),
        subscribe=(_answers(scope),),
    )


def _recorder(scope: Scope) -> Permissions:
    """Verifies, finishes purges, gives up bases, clears what was taken, announces what is stalled.

    Writes no live event.
    """
    at, tenant = scope.prefix, scope.tenant
    purged = [*scope.logs, *_SIDE]
    return Permissions(
        publish=(
            *_always(),
            f"{at}.*.{tenant}.*.base",
            f"{at}.alive.{tenant}",
            f"{at}.notice.{tenant}.*",
            f"$KV.{names.KEYS_BUCKET}.{tenant}.*",
            *_api("DIRECT.GET", [*scope.logs, INBOX_STREAM, BLOB_STREAM, DEAD_STREAM, KEYS_STREAM]),
            *_api("STREAM.MSG.GET", purged),
            *_api("STREAM.INFO", [*scope.logs, BLOB_STREAM, DEAD_STREAM]),
            *_api("STREAM.PURGE", purged),
            *_api("CONSUMER.LIST", [*scope.logs, NOTICE_STREAM, DEAD_STREAM]),
        ),
        subscribe=(_answers(scope), f"{at}.alive.{tenant}"),
        deny=_inbox_is_no_slot(scope),
    )


def _operator(scope: Scope) -> Permissions:
    """Makes streams, decides, forks, imports, purges, and looks after subscribers."""
    at, tenant = scope.prefix, scope.tenant
    purged = [*scope.logs, *_SIDE]
    consumed = [*scope.logs, NOTICE_STREAM, DEAD_STREAM]
    return Permissions(
        publish=(
            *_always(),
            *_stores(scope),
            f"{at}.inbox.{tenant}.*.*",
            f"{at}.dead.{tenant}.*.*.*",
            *_api("DIRECT.GET", [*scope.logs, BLOB_STREAM, DEAD_STREAM, KEYS_STREAM]),
            *_api("STREAM.MSG.GET", [*purged, KEYS_STREAM]),
            *_api("STREAM.CREATE", [*purged, KEYS_STREAM]),
            *_api("STREAM.INFO", [*scope.logs, DEAD_STREAM]),
            *_api("STREAM.PURGE", purged),
            *_api("CONSUMER.LIST", consumed),
            *(f"{_API}.CONSUMER.DELETE.{stream}.*" for stream in consumed),
        ),
        subscribe=(_answers(scope), f"{at}.*.{tenant}.*.live", f"{at}.progress.{tenant}.*"),
    )


def _always() -> tuple[str, ...]:
    """What every program asks when it connects, and what tells a user about himself alone."""
    return f"{_API}.STREAM.LIST", OWN_PERMISSIONS


def _reads(streams: Sequence[str]) -> list[str]:
    return _api("DIRECT.GET", streams) + _api("STREAM.MSG.GET", streams)


def _api(verb: str, streams: Iterable[str]) -> list[str]:
    return [f"{_API}.{verb}.{stream}" for stream in streams]


def _answers(scope: Scope) -> str:
    return f"{inbox_prefix(scope.user)}.>"
