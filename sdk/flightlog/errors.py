"""What can go wrong, one class a situation; each says what happened, to whom, and what to do."""


class FlightlogError(Exception):
    """Anything Flightlog raises on purpose. Never holds a payload or a secret."""


class InvalidName(FlightlogError, ValueError):
    """A tenant or session id that is not 1 to 64 of `A-Za-z0-9_-`. Retrying does not help."""

    def __init__(self, what: str, length: int) -> None:
        self.what = what
        why = f"{what} is refused ({length} characters): use 1 to 64 of A-Z a-z 0-9 _ -"
        super().__init__(f"{why}, and put free text into key= or labels=")


class InvalidValue(FlightlogError, ValueError):
    """A value that cannot be recorded without changing it. Raised before anything is sent."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        super().__init__(f"{where} cannot be recorded: {why}; nothing was sent")


class InvalidEvent(FlightlogError, ValueError):
    """Bytes that are not an event of the wire contract."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not an event of wire version 1: {why}")


class BusUnavailable(FlightlogError):
    """NATS did not answer in time. What was sent stays queued; retrying helps once it is back."""

    def __init__(self, where: str, why: str, *, session: str | None = None) -> None:
        self.session = session
        about = f" (session {session})" if session else ""
        super().__init__(f"no answer from NATS at {where}{about}: {why}")


class LayoutRefused(FlightlogError):
    """The broker's streams are missing, or not the ones this version knows. Nothing was changed."""

    def __init__(self, why: str, *, advice: str = "run: flightlog provision") -> None:
        self.why = why
        super().__init__(f"{why}; {advice}")


class NotPermitted(FlightlogError):
    """The broker or Redis refused our credentials or permissions. Retrying does not help."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: check the user, its password and its permissions")


class _OfSession(FlightlogError):
    def __init__(self, session: str, text: str) -> None:
        self.session = session
        super().__init__(text)


class LogFull(_OfSession):
    """The stream is at its limit; nothing was stored. Retrying helps once there is room."""

    def __init__(self, session: str, stream: str) -> None:
        self.stream = stream
        full = f"stream {stream} is full, nothing was stored for session {session}"
        super().__init__(session, f"{full}: raise its max_bytes or purge old sessions")


class TooLarge(FlightlogError, ValueError):
    """An event larger than a message may be; raised before anything is sent."""

    def __init__(self, field: str, size: int, limit: int) -> None:
        self.field, self.size, self.limit = field, size, limit
        super().__init__(f"{field} is too large: {size} bytes, the limit is {limit}")


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


class Suspended(FlightlogError):
    """The session was suspended here; open it again to go on."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session} was suspended; open it again to go on")


class SessionPurged(_OfSession):
    """The session was purged; its events are gone for good."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} was purged; its events are gone")


class SessionLive(_OfSession):
    """Another process is writing the session, and on_live="refuse" was asked for."""

    def __init__(self, session: str) -> None:
        super().__init__(session, f"session {session} is live elsewhere; nothing was appended")


class VersionRefused(FlightlogError):
    """Written by a version that this one cannot follow. Nothing was guessed; use the newer code."""

    def __init__(self, session: str, found: str, known: str) -> None:
        self.session, self.found, self.known = session, found, known
        super().__init__(
            f"session {session} holds events of {found}, this process knows {known}: "
            "resume it with a version that knows both"
        )


class NeedsDecision(_OfSession):
    """A call whose outcome is unknown waits for a person."""

    def __init__(self, session: str, call_id: str) -> None:
        self.call_id = call_id
        what = f"call {call_id} of session {session} waits for a person: "
        super().__init__(
            session, f"{what}flightlog resolve {session} {call_id} --ruling result|rerun|fail"
        )


class CallRefused(_OfSession):
    """A call that the log rules out: a doubled id, a second open model call. Nothing was run."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, f"session {session}: {why}; nothing was run")
