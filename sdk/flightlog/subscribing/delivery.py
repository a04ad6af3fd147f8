"""A delivery: one live event in the hands of one subscriber, until it is settled."""

import logging

from flightlog.bus.notices import Notice
from flightlog.errors import BusUnavailable, LogFull
from flightlog.event import Event
from flightlog.subscribing.letter import delivery_id
from flightlog.subscribing.source import Source

RETRY_FIRST, RETRY_MOST = 1.0, 600.0  # seconds until a failed delivery comes again, doubled

_log = logging.getLogger("flightlog.subscriber")


class Delivery:
    """One live event, at least once; no order is promised, `event.seq` tells.

    Settle it by `ack`, `retry` or `dead`: the first one counts. While this process lives and holds
    the object it goes to nobody else; one that is dropped unsettled comes again in 30 s. Settling
    never raises: what the broker did not hear of comes again.
    """

    def __init__(self, event: Event, notice: Notice, source: Source, attempts: int | None) -> None:
        self.event = event
        self._notice, self._source, self._attempts = notice, source, attempts
        self._settled = False

    @property
    def id(self) -> str:
        """Session and seq: the same each time it comes, for receivers that drop doubles."""
        return delivery_id(self.event.session_id, self.event.seq, self.event.sequence)

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1; crashes of subscribers count too."""
        return self._notice.delivered

    async def ack(self) -> None:
        """It was handled: it does not come again."""
        if self._settle():
            try:
                await self._source.ack(self._notice)
            except BusUnavailable as exc:
                self._unheard(exc)

    async def retry(self, delay: float = 0.0) -> None:
        """Have it delivered again in `delay` seconds, here or elsewhere; it blocks nothing."""
        if self._settle():
            try:
                await self._source.give_back([self._notice], delay)
            except BusUnavailable as exc:
                self._unheard(exc)

    async def dead(self, reason: str) -> None:
        """Give it up: kept as a dead letter with this reason (500 characters, never a payload)."""
        if self._settle():
            try:
                await self._source.bury(self._notice, self.event, reason)
            except (BusUnavailable, LogFull) as exc:
                self._unheard(exc)

    async def fail(self, reason: str, *, after: float = 0.0) -> None:
        """Handling it failed: `retry` after a pause that doubles, `dead` after its attempts.

        The pause is `after` seconds at least.
        """
        if not self._settled:
            _log.warning("delivery %s failed (attempt %d): %s", self.id, self.attempt, reason)
        if self._attempts is not None and self.attempt >= self._attempts:
            await self.dead(reason)
        else:
            await self.retry(max(after, backoff(self.attempt)))

    def _settle(self) -> bool:
        was, self._settled = self._settled, True
        return not was

    def _unheard(self, exc: Exception) -> None:
        _log.warning("delivery %s is not settled and comes again: %s", self.id, exc)


def backoff(attempt: int) -> float:
    """Seconds until a delivery comes again whose attempt with this number failed."""
    return float(min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(attempt - 1, 30)))
