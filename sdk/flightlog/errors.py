"""What can go wrong, one class a situation; each says what happened, to whom, and what to do."""

from flightlog.refusal import CredentialsUnusable as CredentialsUnusable  # noqa: PLC0414 raised under one roof
from flightlog.refusal import FlightlogError as FlightlogError  # noqa: PLC0414 raised under one roof
from flightlog.refusal import InvalidEvent as InvalidEvent  # noqa: PLC0414 raised under one roof
from flightlog.refusal import InvalidName as InvalidName  # noqa: PLC0414 raised under one roof
from flightlog.refusal import InvalidValue as InvalidValue  # noqa: PLC0414 raised under one roof
from flightlog.refusal import KeyTaken as KeyTaken  # noqa: PLC0414 raised under one roof
from flightlog.refusal import LayoutRefused as LayoutRefused  # noqa: PLC0414 raised under one roof
from flightlog.refusal import NotPermitted as NotPermitted  # noqa: PLC0414 raised under one roof
from flightlog.refusal import TooLarge as TooLarge  # noqa: PLC0414 raised under one roof
from flightlog.refusal import VersionRefused as VersionRefused  # noqa: PLC0414 raised under one roof


class BusUnavailable(FlightlogError):
    """NATS did not answer in time. What was sent stays queued; retrying helps once it is back."""

    def __init__(self, where: str, why: str, *, session: str | None = None) -> None:
        self.session = session
        about = f" (session {session})" if session else ""
        super().__init__(f"no answer from NATS at {where}{about}: {why}")


class _OfSession(FlightlogError):
    def __init__(self, session: str, text: str) -> None:
        self.session = session
        super().__init__(text)


class LogFull(_OfSession):
    """The stream is at its limit; no event was stored. Retrying helps once there is room.

    What was stored of a blob before that stays until the recorder collects it, or it is used.
    """

    def __init__(self, session: str, stream: str) -> None:
        self.stream = stream
        full = f"stream {stream} is full, no event was stored for session {session}"
        super().__init__(session, f"{full}: raise its max_bytes or purge old sessions")


class Fenced(_OfSession):
    """Another writer owns the session now; what we queued is not stored. Never retry."""

    def __init__(self, session: str, seq: int) -> None:
        self.seq = seq
        lost = f"session {session} was taken over by another writer after seq {seq}"
        super().__init__(session, f"{lost}; this process must stop working on it")


class LogCorrupt(_OfSession):
    """The leader itself shows a log that does not chain. The cure: a fork at the last good seq."""

    def __init__(self, session: str, seq: int, *, expected: str, found: str) -> None:
        self.seq, self.expected, self.found = seq, expected, found
        seen = f"the log of session {session} is damaged after seq {seq}: expected {expected}"
        super().__init__(session, f"{seen}, found {found}; fork it at {seq} to go on")


class NoSuchSession(_OfSession, LookupError):
    """The log holds no such session, or none that is complete yet."""

    def __init__(self, session: str, why: str = "its log is empty") -> None:
        super().__init__(session, f"there is no session {session}: {why}")


class SessionEnded(_OfSession):
    """The session has ended; open it with reopen=True to append to it."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} has ended: reopen=True goes on with it")


class Suspended(_OfSession):
    """The session was suspended here; open it again to go on."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} was suspended; open it again to go on")


class SessionPurged(_OfSession):
    """The session was purged; its events are gone for good."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} was purged; its events are gone")


class SessionLive(_OfSession):
    """Another process is writing the session, and on_live="refuse" was asked for."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} is live elsewhere; nothing was appended")


class NeedsDecision(_OfSession):
    """A call whose outcome is unknown waits for a person."""

    def __init__(self, session: str, call_id: str, announced_by: int | None) -> None:
        self.call_id, self.announced_by = call_id, announced_by
        place = "" if announced_by is None else f" --announced-by {announced_by}"
        super().__init__(
            session,
            f"call {call_id} of session {session} waits for a person: flightlog resolve {session} "
            f"{call_id}{place} --ruling result|rerun|fail --reason TEXT",
        )


class CallRefused(_OfSession):
    """A call that the log rules out: a doubled id, a second open model call. Nothing was run."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, f"session {session}: {why}; nothing was run")


class BlobMissing(_OfSession):
    """A payload refers to content that its session's blobs do not hold; all else can be read.

    Of a payload that is to be recorded: nothing was; `attach` the content to this session first.
    """

    def __init__(self, session: str, digest: str, why: str = "yet refers to it") -> None:
        self.digest = digest
        super().__init__(session, f"session {session} has no blob {digest}, {why}")


class BlobCorrupt(_OfSession):
    """What is stored as a blob is not what its reference says; all else can be read."""

    def __init__(self, session: str, digest: str, why: str) -> None:
        self.digest, self.why = digest, why
        super().__init__(session, f"blob {digest} of session {session} is damaged: {why}")
