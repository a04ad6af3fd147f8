"""Names on the bus: ids, slots and subjects of wire version 1."""

import base64
import functools
import hashlib
import re

from flightlog import clock
from flightlog.errors import InvalidName

PREFIX = "flightlog.v1"
SLOTS = 64  # never changes: a slot is a session's home for ever
KEYS_BUCKET = "FLIGHTLOG_keys"

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def token(what: str, text: object) -> str:
    """Check a tenant or a session id; raises `InvalidName`, which never repeats the text."""
    if not isinstance(text, str) or not _TOKEN.fullmatch(text):
        raise InvalidName(what, len(text) if isinstance(text, str) else 0)
    return text


def mint() -> str:
    """A new session id: `sess_` and a UUIDv7 (RFC 9562, 5.7) in hex, so ids sort by time."""
    stamp = clock.wall_ns() // 1_000_000
    bits = (stamp << 80) | clock.bits(80)
    bits = (bits & ~(0xF << 76)) | (0x7 << 76)
    bits = (bits & ~(0x3 << 62)) | (0x2 << 62)
    return f"sess_{bits:032x}"


@functools.lru_cache(maxsize=4_096)
def slot(session: str) -> int:
    """NATS' own `partition(64, session)`: 32-bit FNV-1a of the id, modulo 64."""
    hashed = 0x811C9DC5
    for byte in session.encode():
        hashed = ((hashed ^ byte) * 0x01000193) & 0xFFFFFFFF
    return hashed % SLOTS


def log_subject(tenant: str, session: str, part: str, *, prefix: str = PREFIX) -> str:
    """The subject of a session's `base` or `live`."""
    return f"{prefix}.{slot(session)}.{tenant}.{session}.{part}"


def inbox_subject(tenant: str, session: str, id: str, *, prefix: str = PREFIX) -> str:
    """The subject of one message to a session; `id` may be `*` for all of them."""
    return f"{prefix}.inbox.{tenant}.{session}.{id}"


def notice_subject(tenant: str, session: str, *, prefix: str = PREFIX) -> str:
    """The subject on which services announce something about a session."""
    return f"{prefix}.notice.{tenant}.{session}"


def blob_subject(tenant: str, session: str, digest: str, *, prefix: str = PREFIX) -> str:
    """The subject of a chunk of a session's blobs; `digest` may be `*` for all of them."""
    return f"{prefix}.blob.{tenant}.{session}.{digest}"


def alive_subject(tenant: str, *, prefix: str = PREFIX) -> str:
    """The core NATS subject of the writers' beats."""
    return f"{prefix}.alive.{tenant}"


def progress_subject(tenant: str, session: str, *, prefix: str = PREFIX) -> str:
    """The core NATS subject of a session's streamed deltas."""
    return f"{prefix}.progress.{tenant}.{session}"


def dead_subject(
    tenant: str, name: str, session: str, sequence: int | str, *, prefix: str = PREFIX
) -> str:
    """The subject of a subscriber's dead letter; `*` for all names, sessions or sequences."""
    return f"{prefix}.dead.{tenant}.{name}.{session}.{sequence}"


def live_filter(tenant: str, session: str = "*", *, prefix: str = PREFIX) -> str:
    """What is heard of the logs: the live events of a tenant's sessions, or of one of them.

    Of one, too, with a wildcard: a consumer that pushes begins where an exact subject is heard.
    """
    return f"{prefix}.*.{tenant}.{session}.live"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subscription to `pattern` is to hear what was said on `subject`."""
    ours, theirs = pattern.split("."), subject.split(".")
    if ours[-1] == ">" and len(theirs) >= len(ours):
        ours, theirs = ours[:-1], theirs[: len(ours) - 1]
    return len(ours) == len(theirs) and all(
        mine in ("*", its) for mine, its in zip(ours, theirs, strict=True)
    )


def durable(tenant: str, name: str) -> str:
    """The consumers of a subscriber, in every stream; neither part can hold the `@`."""
    return f"{name}@{tenant}"


def key_subject(tenant: str, key: str) -> str:
    """Where the key's id lives in the keys bucket; any text works as a key."""
    hashed = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
    return f"$KV.{KEYS_BUCKET}.{tenant}.{base64.b32encode(hashed).decode().rstrip('=')}"


def parse_log_subject(subject: str, *, prefix: str = PREFIX) -> tuple[str, str, str] | None:
    """(tenant, session, part) of a log subject, or None for any other."""
    tokens = subject.removeprefix(f"{prefix}.").split(".")
    if len(tokens) != 4 or tokens[3] not in ("base", "live"):
        return None
    return tokens[1], tokens[2], tokens[3]
