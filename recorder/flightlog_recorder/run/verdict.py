"""What becomes of a job: decided from its session's state and its program's end. Pure."""

from signal import Signals

from msgspec import Struct

from flightlog.state import ENDED, SessionState
from flightlog.step import Decide

ATTEMPT_FAILED = "attempt_failed"  # the event that says so; counted over all pods of a session
MOST_LOST = (
    30  # processes of a session that died without a word, as by SIGKILL, before it is failed
)
FINE, FAILED, FENCED = 0, 1, 4
_SIGNALLED = 128  # plus the signal's number
_STOPS = ("SIGTERM", "SIGINT", "SIGHUP")
_LEFT = "closed"  # the reason that the SDK writes when a block is left without an end,
_RAISED = ("Error", "Exception", "ExceptionGroup", "Exit")  # or the exception that left it


class Rules(Struct, frozen=True):
    """How often a program is started again, and the run whose writers are ours."""

    retries: int
    run: str


class Began(Struct, frozen=True):
    """Where the session stood when the program was started."""

    writer: int = 0
    attempts: int = 0


class End(Struct, frozen=True):
    """How a program ended: `code` is minus the signal that killed it; `told`: the stop we sent."""

    code: int
    told: Signals | None = None


class Start(Struct, frozen=True):
    """Start the program."""


class Leave(Struct, frozen=True):
    """Append nothing."""

    code: int
    why: str


class Finish(Struct, frozen=True):
    """End the session as completed or failed."""

    code: int
    why: str
    error: str | None = None


class Suspend(Struct, frozen=True):
    """Suspend the session, unless it is."""

    code: int
    why: str
    reason: str


class Retry(Struct, frozen=True):
    """Record that an attempt failed, and start the program again."""

    attempt: int
    why: str


Before = Start | Leave | Finish
After = Leave | Finish | Suspend | Retry


def before(state: SessionState | None, rules: Rules) -> Before:
    """Whether to start the program at all."""
    if state is None:
        return Start()
    if state.status in ENDED:
        return _over(state, FINE)
    if (lost := lost_processes(state)) >= MOST_LOST:
        return _failed(f"{lost} processes of the session died without a word", attempts(state))
    if attempts(state) > rules.retries:
        return _failed("the last attempt failed", attempts(state))
    return Start()


def after(state: SessionState | None, end: End, rules: Rules, began: Began) -> After:
    """What the program's end means for the session and for the job."""
    state = state or SessionState()
    if is_taken(state, rules, began) or (end.code == FENCED and _is_anothers(state, rules)):
        return Leave(FENCED, "another writer has taken the session over; this job must not go on")
    if state.status in ENDED:
        return _over(state, end.code if end.code >= 0 else _SIGNALLED - end.code)
    if end.told is not None:
        name = end.told.name
        return Suspend(_SIGNALLED + end.told, f"stopped by {name}; it can be resumed", name)
    if isinstance(state.next, Decide):
        return Suspend(FINE, "it waits for a person", "waits for a person")
    if end.code == 0:
        return _exited_fine(state)
    return _exited_badly(end, rules, began)


def _is_anothers(state: SessionState, rules: Rules) -> bool:
    """Whether a program that says it was refused may be right: nobody else opens it behind ours."""
    return state.status == "running" and not is_ours(state, rules)


def _exited_fine(state: SessionState) -> After:
    reason = state.reason or ""
    if state.status == "suspended" and is_on_purpose(reason):
        code = _SIGNALLED + Signals[reason] if reason in _STOPS else FINE
        return Leave(code, "it was suspended and can be resumed")
    return Finish(FINE, "completed")


def _exited_badly(end: End, rules: Rules, began: Began) -> After:
    failed, how = began.attempts + 1, described(end.code)
    if failed > rules.retries:
        return _failed(how, failed)
    return Retry(failed, f"attempt {failed} of {rules.retries + 1} ended with {how}")


def _failed(how: str, count: int) -> Finish:
    tried = f"{count} attempt{'' if count == 1 else 's'}"
    return Finish(FAILED, f"failed after {tried}: {how}", f"{how}, after {tried}")


def _over(state: SessionState, code: int) -> Leave:
    """An ended session stays as it is; one that did not complete is no success for the job."""
    failed = FAILED if state.status != "completed" else FINE
    return Leave(code or failed, f"the session has ended: {state.status}")


def described(code: int) -> str:
    """A program's exit code or signal in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def attempts(state: SessionState) -> int:
    """Attempts of the session that failed, in this pod and in those before it."""
    return state.counts.get(ATTEMPT_FAILED, 0)


def lost_processes(state: SessionState) -> int:
    """Writers of the session that neither suspended nor ended it."""
    counts = state.counts
    opened = ("session_started", "session_resumed", "session_reopened")
    closed = ("session_suspended", "session_ended")
    return sum(counts.get(n, 0) for n in opened) - sum(counts.get(n, 0) for n in closed)


def is_ours(state: SessionState, rules: Rules) -> bool:
    """Whether the session's last writer is a process of this run."""
    return (state.writer_id or "").startswith(rules.run)


def is_taken(state: SessionState, rules: Rules, began: Began) -> bool:
    """Whether a writer that is none of ours came since the program was started."""
    return state.writer > began.writer and not is_ours(state, rules)


def gone(state: SessionState | None, rules: Rules) -> str:
    """How the id of the last writer begins, where none but ours and those before us have come."""
    if state is None or not state.writer_id or is_ours(state, rules):
        return rules.run
    return state.writer_id


def is_on_purpose(reason: str) -> bool:
    """Whether a session was suspended for a reason, not by leaving its block without an end."""
    return reason != _LEFT and not reason.endswith(_RAISED)
