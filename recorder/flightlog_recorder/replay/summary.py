"""A state in a few lines that can be read at a glance. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from flightlog.calls import CallState
from flightlog.messages import providers
from flightlog.messages.provider import Reply
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent, Slot
from flightlog.session_state import ENDED, SessionState
from flightlog.step import AwaitUser, Call, CallModel, Decide, Ended, RunTools
from flightlog_recorder.inspect.telling import content_text, cut

NAME = 40  # characters of somebody's name for a thing
TOLD = 30  # messages of the context that are told one by one
NAMED = 4  # tools that a line names; the rest is counted

Line = tuple[str, str]  # a name and what there is to say


def headline(state: SessionState) -> str:
    """What was done last, and what the session waits for: one line."""
    parts = [_before(state), _done(state), _owed(state)]
    return ", ".join(part for part in parts if part)


def lines(state: SessionState) -> list[Line]:
    """What else there is to know, name by name; what is empty is left out."""
    found = [
        ("context", _context(state)),
        ("model", cut(state.model or "")),
        ("open", "; ".join(_call(call) for call in state.calls if call.phase != "done")),
        ("hooks", _of(len(state.hooks), "hook undecided", "hooks undecided")),
        ("values", ", ".join(_names(list(_values(state))))),
        ("mark", _mark(state)),
        ("tokens", _tokens(state)),
        ("events", _counts(state)),
    ]
    return [(name, text) for name, text in found if text]


def context(state: SessionState) -> list[str]:
    """The context's last messages, latest first, one line each."""
    latest = list(islice(reversed(state.entries), TOLD))
    tools = {
        (entry.seq, call.call_id): call.name
        for entry in latest
        if isinstance(entry, Answer)
        for call in _reply(entry).calls
    }
    found = [f"{entry.seq:>6}  {_entry(entry, tools)}" for entry in latest]
    left = len(state.entries) - len(latest)
    return [*found, f"and {left:,} before these"] if left else found


def _entry(entry: Entry, tools: Mapping[tuple[int, str], str]) -> str:
    match entry:
        case Said(content=content, origin=origin):
            return f"{'user' if origin == 'human' else origin}: {cut(content_text(content))}"
        case Answer(message=message):
            calls = _list([call.name for call in _reply(entry).calls])
            words = content_text(message)
            said = [] if calls and (not words or words.startswith("[")) else [cut(words)]
            return f"assistant: {' · '.join([*said, f'calls {calls}'] if calls else said)}"
        case Results(seq=seq, slots=slots):
            given = [_slot(slot, tools.get((seq, slot.call_id))) for slot in slots]
            return f"results: {cut(', '.join(given))}"
        case Sent(message=message):
            return f"sent: {cut(content_text(message))}"


def _reply(entry: Answer) -> Reply:
    return providers.get(entry.provider).reply(entry.message)


def _slot(slot: Slot, tool: str | None) -> str:
    return f"{_name(tool or slot.call_id)} {slot.outcome or 'has no result yet'}"


def _before(state: SessionState) -> str:
    if not state.seq:
        return "nothing has happened yet"
    if state.status != "suspended":
        return ""
    return f"suspended ({cut(state.reason)})" if state.reason else "suspended"


def _done(state: SessionState) -> str:
    """What became of the calls that the last answer announced, or that nobody announced."""
    done = Counter(call.result.outcome for call in state.calls if call.result is not None)
    if not done:
        return ""
    said = [_of(done["ok"], "tool call completed", "tool calls completed")] if done["ok"] else []
    said += [
        _of(count, f"tool call ended as {outcome}", f"tool calls ended as {outcome}")
        for outcome, count in done.items()
        if outcome != "ok"
    ]
    return ", ".join(said)


def _owed(state: SessionState) -> str:
    if not state.seq:
        return ""
    match state.next:
        case Ended(status):
            return f"{status}: {cut(state.reason)}" if state.reason else status
        case RunTools(()):
            running = [call.name for call in state.calls if call.phase not in ("done", "announced")]
            return f"waiting for {_of(len(running), 'tool', 'tools')} ({_list(running)})"
        case RunTools(calls):
            return f"{_of(len(calls), 'tool call', 'tool calls')} to run ({_called(calls)})"
        case Decide(calls):
            return f"waiting for a person to decide ({_called(calls)})"
        case CallModel():
            asked = state.open_request
            return f"waiting for the model{f', asked at {asked}' if asked is not None else ''}"
        case AwaitUser():
            return "waiting for the user"


def _context(state: SessionState) -> str:
    count = len(state.entries)
    if not count:
        return ""
    later = max(0, count - state.boundary)
    more = f", {later} since the last request" if later and state.boundary else ""
    return _of(count, "message", "messages") + more


def _call(call: CallState) -> str:
    again = f", attempt {call.attempt}" if call.attempt > 1 else ""
    kept = f", {call.on_resume} on resume" if call.phase == "running" else ""
    return f"{_name(call.name or call.call_id)} {call.phase} at {call.seq}{again}{kept}"


def _values(state: SessionState) -> Sequence[str]:
    return [name for name, _ in state.values.items()]


def _mark(state: SessionState) -> str:
    if (mark := state.checkpoint) is None:
        return ""
    return f"checkpoint {_name(mark.label)} at {mark.seq}" if mark.label else f"at {mark.seq}"


def _tokens(state: SessionState) -> str:
    used = state.usage
    if not (used.input_tokens or used.output_tokens):
        return ""
    cached = f", {used.cache_read_tokens:,} from the cache" if used.cache_read_tokens else ""
    cost = "" if used.dollars is None else f", ${used.dollars:,.4f}"
    return f"{used.input_tokens:,} in, {used.output_tokens:,} out{cached}{cost}"


def _counts(state: SessionState) -> str:
    errors = state.counts.get("errors", 0)
    failed = f", {_of(errors, 'error', 'errors')}" if errors else ""
    writers = len(state.writers)
    writing = f", {_of(writers, 'writer', 'writers')}" if writers else ""
    over = ", ended" if state.status in ENDED else ""
    return f"{state.seq:,}{writing}{failed}{over}"


def _called(calls: Sequence[Call]) -> str:
    return _list([call.name or call.call_id for call in calls])


def _list(names: Sequence[str]) -> str:
    counted = [f"{name} x{n}" if n > 1 else name for name, n in Counter(names).items()]
    return ", ".join(_names(counted))


def _names(names: Sequence[str]) -> list[str]:
    named = [_name(name) for name in names[:NAMED]]
    left = len(names) - NAMED
    return [*named, f"{left} more"] if left > 0 else named


def _name(text: str) -> str:
    return cut(text, width=NAME)


def _of(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}" if count else ""
