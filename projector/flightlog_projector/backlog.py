"""The notices in hand, by session: which session is due, and which notices a row covers. Pure."""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from flightlog.bus.notices import Notice

PACE = (
    0.5  # seconds between two folds of one session: within T = 2 s, and a busy one costs 2 a second
)
RETRY_FIRST, RETRY_MOST = 0.1, 2.0  # seconds; a Redis that is back is used within T

Key = tuple[str, str]  # tenant, session


@dataclass
class Work:
    """A session with notices that no row covers yet."""

    key: Key
    notices: dict[int, Notice] = field(default_factory=dict)
    due: float = 0.0
    failures: int = 0
    in_hand: bool = False

    @property
    def highest(self) -> int:
        """The stream sequence that the row must reach."""
        return max(self.notices)


class Backlog:
    """Coalesces notices by session. Holds at most what the consumer lets be unacknowledged."""

    def __init__(self) -> None:
        self._works: dict[Key, Work] = {}
        self._due: list[tuple[float, Key]] = []
        self._rests: dict[Key, float] = {}
        self._rested: deque[tuple[float, Key]] = deque()

    def __len__(self) -> int:
        return len(self._works)

    @property
    def notices(self) -> int:
        """How many notices are held."""
        return sum(len(work.notices) for work in self._works.values())

    def add(self, keyed: Iterable[tuple[Key, Notice]], now: float) -> None:
        """Take notices; a redelivered one takes the place of the earlier delivery."""
        for key, notice in keyed:
            work = self._works.get(key)
            if work is None:
                work = self._works[key] = Work(key, due=max(now, self._rests.get(key, 0.0)))
                heapq.heappush(self._due, (work.due, key))
            work.notices[notice.sequence] = notice

    def take(self, now: float, limit: int) -> list[Work]:
        """Up to `limit` sessions that are due, longest first; they stay in hand until put back."""
        taken: list[Work] = []
        while self._due and self._due[0][0] <= now and len(taken) < limit:
            due, key = heapq.heappop(self._due)
            work = self._works.get(key)
            if work is not None and not work.in_hand and work.due == due:
                work.in_hand = True
                taken.append(work)
        return taken

    def wait(self, now: float) -> float | None:
        """Seconds until a session is due; None when none is waiting."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    def settle(self, key: Key, covered: int, now: float) -> list[Notice]:
        """Take back a session that is covered up to `covered`: the notices to acknowledge.

        What came in meanwhile is due after a pause.
        """
        work = self._works[key]
        done = [
            work.notices.pop(sequence) for sequence in sorted(work.notices) if sequence <= covered
        ]
        self._rest(key, now + PACE, now)
        if work.notices:
            self._put_back(work, now + PACE, failures=0)
        else:
            del self._works[key]
        return done

    def retry(self, key: Key, now: float) -> None:
        """Take back a session that could not be projected now; it is due after a pause."""
        work = self._works[key]
        pause = min(RETRY_MOST, RETRY_FIRST * 2**work.failures)
        self._put_back(work, now + pause, failures=min(work.failures + 1, 10))

    def _put_back(self, work: Work, due: float, *, failures: int) -> None:
        work.due, work.failures, work.in_hand = due, failures, False
        heapq.heappush(self._due, (due, work.key))

    def _rest(self, key: Key, until: float, now: float) -> None:
        self._rests[key] = until
        self._rested.append((until, key))
        while self._rested and self._rested[0][0] <= now:
            past, old = self._rested.popleft()
            if self._rests.get(old) == past:
                del self._rests[old]
