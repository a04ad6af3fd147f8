"""A session as a file: its stored bodies, one a line, byte for byte."""

from typing import IO

from flightlog.bus import Bus
from flightlog.errors import FlightlogError, LogCorrupt, NoSuchSession, SessionPurged
from flightlog.event import Event
from flightlog_recorder.inspect.follow import Following, Rewound


class NotOneLine(FlightlogError):
    """An event whose stored body holds a line break: as it is, it is not one line of a file."""

    def __init__(self, session: str, seq: int) -> None:
        self.session, self.seq = session, seq
        super().__init__(
            f"event {seq} of session {session} was stored with a line break in it, so its bytes are"
            f" not one line; flightlog export --until {seq - 1} writes what is before it"
        )


async def copy(
    bus: Bus, tenant: str, session: str, file: IO[bytes], *, until: int | None = None
) -> int:
    """Write the events up to seq `until` into a file that can be rewound; returns how many.

    Memory is one page. Raises `NotOneLine`, `LogCorrupt`, `NoSuchSession`, `SessionPurged`; what
    the file then holds is not to be kept.
    """
    following = Following(bus, tenant, session)
    places = _Places(file)
    try:
        await _write(following, places, until)
    except LogCorrupt as exc:
        if until is None or exc.seq < until:
            raise
    if following.presence == "purged":
        raise SessionPurged(session)
    if following.presence != "present":
        raise NoSuchSession(session)
    return places.count


async def _write(following: Following, places: "_Places", until: int | None) -> None:
    async for found in following.more():
        if isinstance(found, Rewound):
            places.back_to(found.to)
            continue
        for event in found:
            if until is None or event.seq <= until:
                _check(event)
                places.write(event)


def _check(event: Event) -> None:
    if b"\n" in event.body or b"\r" in event.body:
        raise NotOneLine(event.session_id, event.seq)


class _Places:
    """The lines of a file; a fenced writer's are cut off again, once its loser is known."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def write(self, event: Event) -> None:
        self._file.write(event.body + b"\n")
        self.count += 1

    def back_to(self, seq: int) -> None:
        """Keep the first `seq` lines alone; rare, so it reads them again."""
        self._file.seek(0)
        for _ in range(min(seq, self.count)):
            self._file.readline()
        self._file.truncate(self._file.tell())
        self._file.seek(0, 2)
        self.count = min(seq, self.count)
