"""Imported rollouts folded: the context, what is owed, and what opening makes of them."""

from pathlib import Path
from typing import Any

from flightlog import state as states
from flightlog.state import SessionState
from flightlog.step import AwaitUser, CallModel, RunTools
from flightlog_recorder.importer import Imported, read_codex
from tests.recorder.imported import assert_valid, chained, folded, opened
from tests.recorder.rollouts import DATA, every_rollout


@every_rollout
def test_both_providers_would_take_the_context_at_every_cut(path: Path) -> None:
    state = states.initial()
    for each in chained(read_codex(path)):
        state = states.apply(state, each)
        assert_valid(state)


@every_rollout
def test_a_snapshot_of_an_import_at_any_seq_goes_on_to_the_same_bytes(path: Path) -> None:
    state, stored = states.initial(), states.initial()
    for each in chained(read_codex(path)):
        state = states.apply(state, each)
        stored = states.apply(states.decode(states.encode(stored)), each)
        assert states.apply(state, each) is state
    assert states.encode(stored) == states.encode(state)


@every_rollout
def test_the_fold_and_the_report_count_the_same_tokens(path: Path) -> None:
    imported = read_codex(path)
    usage, counted = folded(chained(imported)).usage, imported.report.usage
    assert usage.input_tokens == counted.input_tokens
    assert usage.output_tokens == counted.output_tokens
    assert usage.cache_read_tokens == counted.cache_read_tokens
    assert usage.cache_write_tokens == counted.cache_write_tokens


@every_rollout
def test_an_import_runs_no_tool_asks_nobody_and_goes_on_once_it_is_opened(path: Path) -> None:
    imported = read_codex(path)
    step = folded(chained(imported)).next
    assert step == RunTools(()) or isinstance(step, CallModel | AwaitUser)
    state = opened(imported)
    assert isinstance(state.next, CallModel | AwaitUser)
    assert_valid(state)


@every_rollout
def test_what_only_openai_can_read_is_in_no_view(path: Path) -> None:
    state = states.initial()
    for each in chained(read_codex(path)):
        state = states.apply(state, each)
        shown = repr([state.messages("anthropic"), state.messages("openai-chat")])
        assert "gAAAAAB" not in shown
        assert "encrypted_content" not in shown.replace("[left out here: encrypted_content]", "")


def test_the_context_is_the_conversation_with_calls_and_results_in_pairs() -> None:
    state = opened(read_codex(DATA / "tools.jsonl"))
    first, *_ = [m for m in state.messages("openai-chat") if m.get("tool_calls")]
    assert first["content"] == "I will look first."
    assert [call["id"] for call in first["tool_calls"]] == ["call_1", "call_2", "ls_1"]
    assert [call["type"] for call in first["tool_calls"]] == ["function", "custom", "function"]
    told = [m["content"] for m in state.messages("openai-chat") if m["role"] == "tool"]
    assert told[0].endswith("Output:\nplan.md\n")
    assert told[2] == [
        {"type": "text", "text": "/tmp/repo"},
        {"type": "text", "text": "[an image is left out here]"},
    ]
    assert state.next == AwaitUser()


def test_a_rollback_takes_its_turns_out_of_the_context_where_it_stands() -> None:
    imported = read_codex(DATA / "rollback.jsonl")
    assert after(imported, "rewind", events=0)[-3:] == [
        "Now delete it.",
        None,
        "This call has no result yet.",
    ]
    assert after(imported, "rewind") == [
        "<environment_context></environment_context>",
        "Sort this list.",
        "How?",
    ]
    assert talk(opened(imported)) == [
        "<environment_context></environment_context>",
        "Sort this list.",
        "How?",
        "No, with mergesort.",
        "Mergesort is there.",
    ]


def test_a_rollback_leaves_nothing_owed_for_what_it_took_back() -> None:
    imported = read_codex(DATA / "rollback.jsonl")
    at = next(i for i, draft in enumerate(imported.drafts) if draft.type == "rewind")
    state = folded(chained(imported)[: at + 2])
    assert (state.next, state.calls) == (AwaitUser(), ())


def test_after_a_compaction_the_context_is_its_replacement_history() -> None:
    imported = read_codex(DATA / "compaction.jsonl")
    assert after(imported, "compact") == [
        "Be careful.",
        "Start.",
        "Started.",
        "Run make.",
        "[left out here: compaction]",
    ]


def test_a_rollback_may_reach_into_what_a_compaction_left() -> None:
    imported = read_codex(DATA / "compaction.jsonl")
    assert after(imported, "rewind", events=2) == ["Be careful.", "Start.", "Started."]


def test_a_compaction_without_replacement_history_leaves_its_message() -> None:
    state = opened(read_codex(DATA / "compaction.jsonl"))
    assert talk(state) == ["make and the tests were run.", "Good.", "Bye."]


def test_a_fork_holds_the_history_of_its_parent_and_its_own() -> None:
    state = opened(read_codex(DATA / "fork.jsonl"))
    assert talk(state)[:3] == ["Parent's question.", "Parent's answer.", "Look around."]
    assert state.counts["errors"] == 3  # the API error, the failed search, the call left open


def after(imported: Imported, type: str, *, events: int = 1) -> list[Any]:
    at = next(i for i, draft in enumerate(imported.drafts) if draft.type == type)
    return talk(folded(chained(imported)[: at + 1 + events]))


def talk(state: SessionState) -> list[Any]:
    return [message["content"] for message in state.messages("openai-chat")]
