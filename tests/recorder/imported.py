"""Imports as the events that they become, without a bus."""

from msgspec import Raw

from flightlog import event
from flightlog import state as states
from flightlog.event import Event
from flightlog.running import ruling
from flightlog.state import SessionState
from flightlog.wire import payload
from flightlog_recorder.importer import Imported
from tests.sdk import pairing_anthropic, pairing_openai


def chained(imported: Imported) -> list[Event]:
    """The base that the import becomes: session_imported, then the drafts."""
    first = payload.encode(payload.SessionImported(format=imported.format, hash=imported.hash))
    events = [appended(None, "session_imported", first)]
    for draft in imported.drafts:
        parent = events[-1].seq if draft.parent is None else draft.parent + imported.first_seq
        events.append(appended(events[-1], draft.type, draft.payload, parent=parent))
    return events


def appended(last: Event | None, type: str, raw: Raw, *, parent: int | None = None) -> Event:
    return event.compose(
        session_id="sess_imported",
        seq=last.seq + 1 if last else 1,
        type=type,
        payload=raw,
        prev=last.digest if last else None,
        parent_seq=parent,
        harness_version="test",
        ts="2026-05-06T14:23:01.123456Z",
    )


def folded(events: list[Event]) -> SessionState:
    state = states.initial()
    for each in events:
        state = states.apply(state, each)
    return state


def opened(imported: Imported) -> SessionState:
    """The state once a writer has resumed the import and ruled what was in flight."""
    events = chained(imported)
    resumed = payload.SessionResumed(writer=payload.Writer(number=1, id="w"))
    last = appended(events[-1], "session_resumed", payload.encode(resumed))
    state = states.apply(folded(events), last)
    for owed in ruling.on_resume(state):
        kind = type(owed.payload)
        name = payload.NAMES[kind]  # type: ignore[index]
        raw = payload.encode(owed.payload)  # type: ignore[arg-type]
        last = appended(last, name, raw, parent=owed.parent_seq)
        state = states.apply(state, last)
    return state


def assert_valid(state: SessionState) -> None:
    """Both providers would take the context."""
    assert pairing_anthropic.faults(state.messages("anthropic")) == []
    assert pairing_openai.faults(state.messages("openai-chat")) == []
