"""What the harnesses saw: kept by the world, which no crash touches, for the checker."""

from dataclasses import dataclass, field
from typing import Literal

NoteFate = Literal["open", "acked", "refused", "fenced", "unknown"]


@dataclass(slots=True)
class Ack:
    """An event that a process was told is stored."""

    process: str
    session: str
    seq: int
    digest: str
    sequence: int
    type: str


@dataclass(slots=True)
class Note:
    """One append of ours and how it ended for who called it; `n` counts per process."""

    process: str
    session: str
    n: int
    fate: NoteFate = "open"
    digest: str = ""
    why: str = ""


@dataclass(slots=True)
class Run:
    """A tool that ran: the side effect that nobody can take back."""

    process: str
    session: str
    announced_by: int | None
    call_id: str


@dataclass(slots=True)
class Fold:
    """A state that someone held, and the event it stands at."""

    who: str
    session: str
    seq: int
    digest: str | None
    state: bytes
    at: float  # virtual time at which the log was read, 0 if it was not


@dataclass(slots=True)
class Loss:
    """A process that was told it lost its session, and what the log's stream held then."""

    process: str
    session: str
    error: str
    last_sequence: int
    since: float  # virtual time from which another must have taken over


@dataclass(slots=True)
class Item:
    """Something sent to an inbox; `sequence` is what the sender was told, 0 if nothing."""

    session: str
    id: str
    kind: str
    sequence: int = 0


@dataclass(slots=True)
class Opening:
    """A key that was opened, and the id that it stood for."""

    process: str
    key: str
    session: str
    began: float


@dataclass(slots=True)
class Records:
    """Everything that was seen in one seed."""

    acks: list[Ack] = field(default_factory=list[Ack])
    notes: list[Note] = field(default_factory=list[Note])
    runs: list[Run] = field(default_factory=list[Run])
    folds: list[Fold] = field(default_factory=list[Fold])
    losses: list[Loss] = field(default_factory=list[Loss])
    items: list[Item] = field(default_factory=list[Item])
    openings: list[Opening] = field(default_factory=list[Opening])
    violations: list[str] = field(default_factory=list[str])
