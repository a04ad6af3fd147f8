"""Imported transcripts folded: the context, what is owed, and what opening makes of them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from flightlog import event, payload, ruling
from flightlog import state as states
from flightlog.event import Event
from flightlog.state import SessionState
from flightlog.step import AwaitUser, CallModel, RunTools
from flightlog_recorder.importer import Imported, read_claude_code
from tests.sdk import pairing_anthropic, pairing_openai

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[3] / "shared" / "samples" / "claude-code"
REAL = sorted(SHARED.rglob("*.jsonl"))
ABSENT = pytest.mark.skip(reason="real transcripts are not here: ../shared/samples/claude-code")
SAMPLES: list[Any] = [*sorted(DATA.glob("*.jsonl")), *REAL]

every_transcript = pytest.mark.parametrize(
    "path",
    SAMPLES if REAL else [*SAMPLES, pytest.param(SHARED, marks=ABSENT)],
    ids=lambda p: p.stem,
)


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


@every_transcript
def test_both_providers_would_take_the_context_at_every_cut(path: Path) -> None:
    state = states.initial()
    for each in chained(read_claude_code(path)):
        state = states.apply(state, each)
        assert_valid(state)


@every_transcript
def test_a_snapshot_of_an_import_at_any_seq_goes_on_to_the_same_bytes(path: Path) -> None:
    events = chained(read_claude_code(path))
    state, stored = states.initial(), states.initial()
    for each in events:
        state = states.apply(state, each)
        stored = states.apply(states.decode(states.encode(stored)), each)
        assert states.apply(state, each) is state
    assert states.encode(stored) == states.encode(state)


@every_transcript
def test_the_fold_and_the_report_count_the_same_tokens(path: Path) -> None:
    imported = read_claude_code(path)
    usage, counted = folded(chained(imported)).usage, imported.report.usage
    assert usage.input_tokens == counted.input_tokens
    assert usage.output_tokens == counted.output_tokens
    assert usage.cache_read_tokens == counted.cache_read_tokens
    assert usage.cache_write_tokens == counted.cache_write_tokens


@every_transcript
def test_an_import_runs_no_tool_asks_nobody_and_goes_on_once_it_is_opened(path: Path) -> None:
    imported = read_claude_code(path)
    step = folded(chained(imported)).next
    assert step == RunTools(()) or isinstance(step, CallModel | AwaitUser)
    state = opened(imported)
    assert isinstance(state.next, CallModel | AwaitUser)
    assert_valid(state)


def test_the_context_is_the_conversation_that_the_rewind_left() -> None:
    messages = opened(read_claude_code(DATA / "rewind.jsonl")).messages()
    assert [text_of(message) for message in messages] == [
        "Sort this list.",
        "How?",
        "No, with mergesort.",
        "Mergesort is there.",
    ]


def test_the_context_begins_with_the_summary_of_the_last_compaction() -> None:
    messages = opened(read_claude_code(DATA / "compaction.jsonl")).messages()
    assert [text_of(message) for message in messages] == [
        "This session is being continued. Summary: make was run.",
        "Going on.",
        "Thanks.",
    ]


def test_a_sub_agent_and_an_api_error_leave_no_trace_in_the_context() -> None:
    state = opened(read_claude_code(DATA / "sidechain.jsonl"))
    assert [message["role"] for message in state.messages()] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert state.counts["errors"] == 2  # the API error, and the call that nobody saw end
    assert state.next == CallModel()


def test_a_call_that_the_transcript_left_open_is_told_to_the_model_as_unknown() -> None:
    state = opened(read_claude_code(DATA / "sidechain.jsonl"))
    (block,) = state.messages()[-1]["content"]
    assert block["is_error"] is True
    assert block["tool_use_id"] == "toolu_9"


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]
