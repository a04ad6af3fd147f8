"""What a long session is marked by, in a bounded number of places: where to look. Pure."""

from collections.abc import Iterable
from typing import Literal

from flightlog.event import Event
from flightlog_recorder.inspector.timeline import LEFT, TURNS
from flightlog_recorder.replay import choice

PLACES = 400  # that a page draws

Mark = Literal["crash", "error", "asks", "context", "turn"]

ORDER: tuple[Mark, ...] = ("crash", "error", "asks", "context", "turn")  # what is drawn over what
CONTEXT = frozenset({"compact", "rewind", "checkpoint"})


class Marks:
    """Takes a session's events in order; of those that fall on one place the worst is kept."""

    def __init__(self, last: int) -> None:
        self._spacing = max(1, -(-last // PLACES))
        self._places: dict[int, tuple[int, Mark]] = {}
        self._before = ""

    def take(self, events: Iterable[Event]) -> None:
        """See more events."""
        for event in events:
            mark = self._mark(event)
            self._before = event.type
            if mark is None:
                continue
            place = (event.seq - 1) // self._spacing
            known = self._places.get(place)
            if known is None or ORDER.index(mark) < ORDER.index(known[1]):
                self._places[place] = (event.seq, mark)

    def found(self) -> list[tuple[int, Mark]]:
        """The marks by seq."""
        return sorted(self._places.values())

    def _mark(self, event: Event) -> Mark | None:
        if event.type == "session_resumed":
            return "crash" if self._before and self._before not in LEFT else None
        if event.type == "decision_requested":
            return "asks"
        if event.type in CONTEXT:
            return "context"
        if event.type in TURNS:
            return "turn"
        return "error" if choice.is_error(event) else None
