"""The catalog: one row per session, how rows replace each other, and how they are found."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from flightlog import usage as tokens
from flightlog.state import SessionState
from flightlog.step import AwaitUser, CallModel, Decide, Ended, RunTools

ALL = "all"
KEYS = "keys"  # ordered by key, not by time
ORIGINS = "origins"  # ordered by the session that forked or called, then by time
STATUSES = ("new", "running", "suspended", "completed", "failed", "cancelled")
WAITING = ("model", "tools", "decide", "await_user")
MOST_LABELS = 64  # of a session that it is found by; each costs a write
_DAMAGED, _STALLED = "damaged", "stalled"

_encode = msgspec.json.Encoder(order="deterministic").encode


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="row", tag_field="is"):
    """What the catalog knows of a session.

    `sequence` is the stream sequence of its last event, `read_to` that of the last message read,
    event or not: the row covers every message up to there. `waiting` is what the session owes:
    `model`, `tools`, `decide` or `await_user`. `cost` is in US dollars, None where no response
    told one. `error` says why the session was set aside, `damage` what the recorder found in its
    log, `stalled` since when neither it nor its process was heard of: a new event removes that.
    """

    tenant: str
    session: str
    key: str | None = None
    status: str = "new"
    waiting: str | None = None
    labels: dict[str, str] = {}
    seq: int = 0
    first_ts: str | None = None
    last_ts: str | None = None
    counts: dict[str, int] = {}
    usage: dict[str, int] = {}
    cost: float | None = None
    strays: int = 0
    writer: int = 0
    harness_version: str | None = None
    model: str | None = None
    lineage: dict[str, Any] = {}
    read_to: int = 0
    sequence: int = 0
    snapshot_seq: int = 0
    snapshot_at: float = 0.0
    error: str | None = None
    damage: str | None = None
    stalled: str | None = None

    @property
    def parent(self) -> str | None:
        """The session whose call opened this one; a fork of such a session is nobody's child."""
        return None if "forked_from" in self.lineage else self._origin("parent")

    @property
    def fork_of(self) -> str | None:
        """The session that this one was forked from."""
        return self._origin("forked_from")

    @property
    def trouble(self) -> str | None:
        """Why the session is taken for damaged; None if nobody does."""
        return self.damage or self.error

    def _origin(self, how: str) -> str | None:
        origin = self.lineage.get(how)
        return origin.get("session") if isinstance(origin, dict) else None


_row: msgspec.json.Decoder[Row] = msgspec.json.Decoder(Row)


class Filter(Struct, frozen=True, kw_only=True):
    """Which rows are wanted; what is None or empty does not matter."""

    status: str | None = None
    waiting: str | None = None
    labels: Mapping[str, str] = {}
    key: str | None = None
    key_prefix: str | None = None
    job: str | None = None  # a key, and all that is under it: `job/...`
    parent: str | None = None
    fork_of: str | None = None
    damaged: bool | None = None
    stalled: bool | None = None

    def index(self) -> str:
        """The narrowest index by last activity alone that holds every wanted row."""
        for name, value in self.labels.items():
            return label_index(name, value)
        if self.damaged:
            return _DAMAGED
        if self.stalled:
            return _STALLED
        if self.waiting is not None:
            return f"waiting:{self.waiting}"
        return ALL if self.status is None else f"status:{self.status}"

    def origin(self) -> bytes | None:
        """How the index of origins begins for the wanted rows; None if theirs does not matter."""
        if self.parent is not None:
            return _origin("parent", self.parent)
        return None if self.fork_of is None else _origin("fork", self.fork_of)

    def key_ranges(self) -> list[str]:
        """How the index of keys begins for the wanted rows; nothing if their keys do not matter."""
        whole = [key for key in (self.key, self.job) if key is not None]
        begun = [] if self.key_prefix is None else [self.key_prefix]
        begun += [] if self.job is None else [f"{self.job}/"]
        return [*(f"{key}\0" for key in whole), *begun]

    def matches(self, row: Row) -> bool:
        """Whether the row is wanted; decided from the row, as an index may lag behind it."""
        return (
            self.status in (None, row.status)
            and self.waiting in (None, row.waiting)
            and self.key in (None, row.key)
            and self.parent in (None, row.parent)
            and self.fork_of in (None, row.fork_of)
            and (self.key_prefix is None or (row.key or "").startswith(self.key_prefix))
            and (self.job is None or _is_of(self.job, row.key or ""))
            and self.damaged in (None, row.trouble is not None)
            and self.stalled in (None, row.stalled is not None)
            and all(row.labels.get(name) == value for name, value in self.labels.items())
        )


def _is_of(job: str, key: str) -> bool:
    return key == job or key.startswith(f"{job}/")


class Cursor(Struct, frozen=True, order=True):
    """A place in a listing: the last row's activity, in microseconds, and its session."""

    activity: int
    session: str


class Page(Struct, frozen=True):
    """Rows, newest activity first; `after` continues the listing, None at its end.

    `partial`: more keys begin as asked than are looked at, so other sessions may be newer.
    """

    rows: list[Row]
    after: Cursor | None
    partial: bool = False


ANY = Filter()


def row_of(
    state: SessionState,
    *,
    tenant: str,
    session: str,
    sequence: int,
    read_to: int,
    strays: int,
    snapshot_seq: int = 0,
    snapshot_at: float = 0.0,
) -> Row:
    """The row of a folded session."""
    return Row(
        tenant=tenant,
        session=session,
        key=state.key,
        status=state.status,
        waiting=_waiting(state),
        labels=dict(state.labels),
        seq=state.seq,
        first_ts=state.first_ts,
        last_ts=state.last_ts,
        counts=dict(state.counts),
        usage=tokens.counts(state.usage),
        cost=state.usage.dollars,
        strays=strays,
        writer=state.writer,
        harness_version=state.harness_version,
        model=state.model,
        lineage=_known(msgspec.to_builtins(state.lineage)),
        read_to=read_to,
        sequence=sequence,
        snapshot_seq=snapshot_seq,
        snapshot_at=snapshot_at,
    )


def set_aside(row: Row | None, *, tenant: str, session: str, read_to: int, reason: str) -> Row:
    """The row of a session that cannot be projected: what was known of it, and the reason."""
    known = row or Row(tenant=tenant, session=session)
    return msgspec.structs.replace(known, error=reason, read_to=max(known.read_to, read_to))


def encode(row: Row) -> bytes:
    """A row as it is stored; equal rows are equal bytes."""
    return _encode(row)


def decode(value: bytes | None) -> Row | None:
    """A stored row; None for garbage, which is as good as absent."""
    try:
        return _row.decode(value) if value else None
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def replaces(new: Row, old: Row | None) -> bool:
    """Whether `new` is to be written over `old`: the one that reaches further wins."""
    if old is None or new.read_to > old.read_to:
        return True
    return new.read_to == old.read_to and old.error is not None and new.error is None


def succeeding(new: Row, old: Row | None) -> Row:
    """`new` as it is written over `old`: what the recorder found stays until it finds otherwise."""
    return msgspec.structs.replace(new, damage=old.damage) if old else new


def indexes(row: Row | None) -> set[str]:
    """The names of the indexes that hold a row."""
    if row is None:
        return set()
    names = {ALL, f"status:{row.status}"}
    labels = sorted(row.labels.items())[:MOST_LABELS]
    names |= {label_index(name, value) for name, value in labels}
    if row.waiting:
        names.add(f"waiting:{row.waiting}")
    if row.trouble is not None:
        names.add(_DAMAGED)
    if row.stalled is not None:
        names.add(_STALLED)
    return names


def possible_indexes() -> set[str]:
    """The indexes that may hold an unreadable row; labels and origins cannot be told."""
    status = {f"status:{word}" for word in STATUSES}
    return {ALL, _DAMAGED, _STALLED} | status | {f"waiting:{word}" for word in WAITING}


def label_index(name: str, value: str) -> str:
    """The index of a label; hashed, as labels are any text."""
    return f"label:{hashlib.sha256(_encode([name, value])).hexdigest()[:32]}"


def members(row: Row | None) -> set[tuple[str, bytes]]:
    """A row's members in the indexes that are ordered by what these say.

    Origins have one index for all, so that a session which is purged has none to leave behind.
    """
    if row is None:
        return set()
    found = set[tuple[str, bytes]]()
    if row.key is not None:
        found.add((KEYS, f"{row.key}\0{row.session}".encode()))
    for how, session in (("parent", row.parent), ("fork", row.fork_of)):
        if session is not None:
            place = placed(Cursor(activity(row), row.session))
            found.add((ORIGINS, _origin(how, session) + place))
    return found


def _origin(how: str, session: str) -> bytes:
    return f"{how}\0{session}\0".encode("utf-8", "surrogatepass")


def placed(cursor: Cursor) -> bytes:
    """A place in a listing as bytes that are ordered as it is."""
    return f"{cursor.activity:020d}\0{cursor.session}".encode()


def place_of(member: bytes) -> Cursor:
    """The place that a member of the index of origins ends with."""
    _, activity, session = member.rsplit(b"\0", 2)
    return Cursor(int(activity), session.decode("utf-8", "replace"))


def activity(row: Row) -> int:
    """When the session last did something, in microseconds since 1970; 0 if it does not say."""
    if not row.last_ts:
        return 0
    try:
        return max(0, int(datetime.fromisoformat(row.last_ts).timestamp() * 1_000_000))
    except (ValueError, OverflowError):
        return 0


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """Rows in the order of a listing."""
    return sorted(rows, key=lambda row: Cursor(activity(row), row.session), reverse=True)


def _waiting(state: SessionState) -> str | None:
    match state.next:
        case CallModel():
            return "model"
        case RunTools():
            return "tools"
        case Decide():
            return "decide"
        case AwaitUser():
            return "await_user"
        case Ended():
            return None


def _known(lineage: Any) -> dict[str, Any]:
    fields = lineage if isinstance(lineage, dict) else {}
    return {name: value for name, value in fields.items() if value is not None}
