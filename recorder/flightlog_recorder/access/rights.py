"""Roles as data: the commands of Redis and the keys that each may use, as lines of an ACL. Pure.

Each list was made by running the role's whole work on a real server, and is held to it by
tests/system/test_roles_redis.py: nothing is missing, and nothing is there that no work uses.
A subscriber has no use for Redis, nor have admin and doctor, who are for NATS: an operator asks it.
"""

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from flightlog.cache import place
from flightlog_recorder.access.role import Role

NOBODY = "user default off"  # without it, whoever does not say who he is may do anything
CLUSTER = ("cluster|slots", "command")  # what redis-py asks a cluster before all else

_SNAPSHOTS = ("hget", "hmget")
_LISTINGS = ("mget", "zrevrangebyscore")
_BY_KEY = ("zrangebylex", "zrevrangebylex")  # and by origin
_VITALS = ("info", "time")  # memory, eviction policy, clock
_SCRIPTS = ("evalsha", "script|load", "type", "get", "set", "del")
_ROWS = (*_SCRIPTS, "zadd", "zrem")


class Rights(Struct, frozen=True):
    """Commands, and patterns of keys as an ACL writes them: `%R~` is for those only read."""

    commands: tuple[str, ...]
    keys: tuple[str, ...] = ()


def rights(role: Role, *, tenant: str, prefix: str = place.PREFIX) -> Rights | None:
    """What the role may do; `tenant` may be `*`, for all. None: it has no business with Redis."""
    sessions, rows = f"{prefix}:session:{{{tenant}.*", f"{prefix}:tenant:{{{tenant}}}:*"
    streams = f"{prefix}:stream:*"
    match role:
        case "harness":
            own = (f"%R~{sessions}", f"%R~{rows}")
            whole = (f"%R~{streams}:floor", f"%R~{streams}:rebuilding")  # is the catalog whole?
            return Rights(("get", *_SNAPSHOTS, *_LISTINGS, *_BY_KEY), (*own, *whole))
        case "projector":
            return Rights(_PROJECTS, (f"~{sessions}", f"~{rows}", f"~{streams}"))
        case "recorder":
            keys = (f"~{rows}", f"%R~{sessions}", f"%R~{streams}")
            return Rights((*_SNAPSHOTS, *_LISTINGS, *_ROWS), keys)
        case "operator":
            read = (f"%R~{sessions}", f"%R~{rows}", f"%R~{streams}")
            return Rights(("get", "smembers", *_SNAPSHOTS, *_LISTINGS, *_BY_KEY, *_VITALS), read)
        case "subscriber" | "admin" | "doctor":
            return None


_PROJECTS = (
    "ping",
    *_ROWS,
    *_SNAPSHOTS,
    *("mget", "exists", "unlink", "hset", "hdel", "hkeys", "sadd", "srem", "smembers"),
)


def line(user: str, password: str, found: Rights, *, cluster: bool = False) -> str:
    """The user's line in an ACL file; of the password it holds the SHA-256 alone."""
    digest = hashlib.sha256(password.encode()).hexdigest()
    allowed = [f"+{each}" for each in (*found.commands, *(CLUSTER if cluster else ()))]
    return " ".join(["user", user, "on", f"#{digest}", *found.keys, "-@all", *allowed])


def merged(text: str, lines: Sequence[str]) -> str:
    """An ACL file with these users' lines in it, once each; what others have there stays."""
    ours = {_user(each) for each in lines}
    kept = [each for each in text.splitlines() if each and _user(each) not in ours]
    first = [] if any(_user(each) == "default" for each in kept) else [NOBODY]
    return "".join(f"{each}\n" for each in (*first, *kept, *lines))


def _user(text: str) -> str:
    words = text.split()
    return words[1] if len(words) > 1 and words[0] == "user" else ""
