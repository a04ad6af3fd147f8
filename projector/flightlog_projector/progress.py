"""Whether the projector moves: what `/livez` answers, from the projector's own pace alone."""

from flightlog.bus.notices import MAX_ACK_PENDING, Standing

SILENCE = 10.0  # seconds without a notice, while there are some, until the subscription is renewed


class Progress:
    """One stream's progress, in seconds of a monotonic clock.

    Work that is there and does not move for `patience` is a failure of this process. While NATS or
    Redis is seen to be away, standing still is right, and the clock starts anew.
    """

    def __init__(self, patience: float, now: float) -> None:
        self._patience = patience
        self._turned_at = self._moved_at = self._heard_at = now
        self.standing = Standing(0, 0, 0, 0)

    @property
    def pending(self) -> int:
        """Messages that are not covered yet."""
        return self.standing.pending + self.standing.ack_pending

    def turned(self, now: float) -> None:
        """The loop went round."""
        self._turned_at = now

    def heard(self, now: float) -> None:
        """Notices came, or the subscription was made anew."""
        self._heard_at = now

    def moved(self, now: float) -> None:
        """A page was read, or something was covered."""
        self._moved_at = now

    def hindered(self, now: float) -> None:
        """NATS or Redis did not serve: the loop lives, and has no reason to move."""
        self._turned_at = self._moved_at = self._heard_at = now

    def stands(self, standing: Standing, now: float) -> None:
        """The broker says where the consumer stands; whichever replica moved it."""
        before, self.standing = self.standing, standing
        if self.pending == 0 or standing.ack_floor > before.ack_floor:
            self._moved_at = now
        if standing.pending == 0 or standing.ack_pending >= MAX_ACK_PENDING:
            self._heard_at = now

    def is_silent(self, now: float) -> bool:
        """Whether the broker has notices to give and gives none."""
        return now - self._heard_at > SILENCE

    def why_dead(self, now: float) -> str | None:
        """Why the process should be restarted, or None."""
        if now - self._turned_at > self._patience:
            return f"the loop stands still for {now - self._turned_at:.0f} s"
        if self.pending and now - self._moved_at > self._patience:
            return f"{self.pending} messages wait, none moved for {now - self._moved_at:.0f} s"
        return None
