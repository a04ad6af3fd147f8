"""How long an answer is waited for, and how long before the same is asked again."""

from flightlog import clock

ANSWER_TIMEOUT = 5.0  # seconds for one answer; then the same bytes are sent again
_PAUSE_FIRST, _PAUSE_MOST = 0.01, 2.0  # seconds, doubled each time, half of it jitter
_DOUBLINGS = 10  # beyond it the longest pause is reached, and floats would overflow in the end


def pause(attempt: int) -> float:
    """Seconds before try `attempt` + 1: doubling, half of it jitter."""
    most: float = min(_PAUSE_FIRST * 2 ** min(attempt, _DOUBLINGS), _PAUSE_MOST)
    return most / 2 + clock.fraction() * most / 2
