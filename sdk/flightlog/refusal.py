"""What is refused as it stands: names, values, bytes, sizes, layouts, permissions, versions."""


class FlightlogError(Exception):
    """Anything Flightlog raises on purpose. Never holds a payload or a secret."""


class InvalidName(FlightlogError, ValueError):
    """A tenant or session id that is not 1 to 64 of `A-Za-z0-9_-`. Retrying does not help."""

    def __init__(self, what: str, length: int) -> None:
        self.what = what
        why = f"{what} is refused ({length} characters): use 1 to 64 of A-Z a-z 0-9 _ -"
        super().__init__(f"{why}, and put free text into key= or labels=")


class InvalidValue(FlightlogError, ValueError):
    """A value that cannot be recorded without changing it. Raised before an event is sent."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        super().__init__(f"{where} cannot be recorded: {why}; no event was stored")


class InvalidEvent(FlightlogError, ValueError):
    """Bytes that are not an event of the wire contract."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not an event of wire version 1: {why}")


class TooLarge(FlightlogError, ValueError):
    """An event too large for a message, or a content for a blob; raised before an event is sent."""

    def __init__(self, field: str, size: int, limit: int) -> None:
        self.field, self.size, self.limit = field, size, limit
        super().__init__(
            f"{field} is too large: {size} bytes, the limit is {limit}; no event was stored: "
            "shorten it, or record where it is kept"
        )


class LayoutRefused(FlightlogError):
    """The broker's streams are missing, or not the ones this version knows. Nothing was changed."""

    def __init__(self, why: str, *, advice: str = "run: flightlog provision") -> None:
        self.why = why
        super().__init__(f"{why}; {advice}")


class NotPermitted(FlightlogError):
    """The broker or Redis refused our credentials or permissions. Retrying does not help."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: check the user, its password and its permissions")


class CredentialsUnusable(FlightlogError):
    """What should prove who we are cannot be used as it is given. Nothing was sent."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the credentials cannot be used: {why}")


class KeyTaken(FlightlogError):
    """The key stands for another session. Nothing was written."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"the key stands for session {session} already; give another one")


class VersionRefused(FlightlogError):
    """Written by a version that this one cannot follow. Nothing was guessed; use the newer code."""

    def __init__(self, session: str, found: str, known: str) -> None:
        self.session, self.found, self.known = session, found, known
        super().__init__(
            f"session {session} holds events of {found}, this process knows {known}: "
            "resume it with a version that knows both"
        )
