"""Imported transcripts folded: the context, what is owed, and what opening makes of them."""

from pathlib import Path
from typing import Any

import pytest

from flightlog import state as states
from flightlog.step import AwaitUser, CallModel, RunTools
from flightlog_recorder.importer import read_claude_code
from tests.recorder.imported import assert_valid, chained, folded, opened

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
