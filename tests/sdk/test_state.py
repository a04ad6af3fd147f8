"""The fold: what is owed after each event, and that folding is pure, total and repeatable."""

from typing import Any

import pytest
from msgspec import Raw

from flightlog import context, state
from flightlog.lineage import Forked, Parent
from flightlog.state import SessionState
from flightlog.step import AwaitUser, CallModel, Decide, Ended, RunTools, Step
from flightlog.usage import Usage
from flightlog.wire import payload as payloads
from tests.sdk.tale import Tale, begun, text, tool_use


def owed(tale: Tale) -> Step:
    return tale.state.next


def runs(found: SessionState) -> list[tuple[str, int]] | None:
    """(call_id, attempt) of what is to be run; None when something else is owed."""
    return (
        [(call.call_id, call.attempt) for call in found.next.calls]
        if isinstance(found.next, RunTools)
        else None
    )


def test_a_new_session_awaits_the_user_then_calls_the_model_then_runs_its_tools() -> None:
    tale = Tale()
    assert tale.state.status == "new"
    assert owed(tale) == AwaitUser()
    tale.started(key="k", labels={"a": "b"}, policies={"t": {"on_resume": "rerun"}})
    assert owed(tale) == AwaitUser()
    tale.user("hello")
    assert owed(tale) == CallModel()
    tale.request()
    assert owed(tale) == CallModel()
    tale.response(text("I look"), tool_use("a", x=1), tool_use("b", x=2))
    assert runs(tale.state) == [("a", 1), ("b", 1)]
    assert (tale.state.key, tale.state.labels) == ("k", {"a": "b"})
    assert tale.state.policies["t"].on_resume == "rerun"


def test_calls_leave_the_list_when_they_start_and_the_model_is_called_when_all_are_done() -> None:
    tale = begun()
    tale.turn(tool_use("a"), tool_use("b"))
    tale.call("a")
    assert runs(tale.state) == [("b", 1)]
    tale.call("b")
    assert runs(tale.state) == []
    tale.result("b")
    assert runs(tale.state) == []
    tale.result("a")
    assert owed(tale) == CallModel()
    tale.turn(text("done"))
    assert owed(tale) == AwaitUser()


def test_a_crash_between_response_and_first_call_loses_and_invents_nothing() -> None:
    tale = begun()
    tale.turn(tool_use("a", x=1), tool_use("b"))
    before = tale.state.next
    tale.resumed()
    assert tale.rule() == []
    assert owed(tale) == before


def test_calls_of_the_providers_own_tools_are_never_owed() -> None:
    tale = begun()
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    tale.turn(server, text("found"))
    assert owed(tale) == AwaitUser()


@pytest.mark.parametrize("stop", [{"stop": "pause_turn"}, {"error": "Overloaded"}])
def test_after_a_pause_or_an_error_the_model_is_called_again(stop: dict[str, Any]) -> None:
    tale = begun()
    tale.turn(text("so far"), **stop)
    assert owed(tale) == CallModel()


def test_a_pause_is_also_read_from_the_message_itself() -> None:
    tale = begun()
    asked = tale.request()
    message = {"content": [text("so far")], "stop_reason": "pause_turn"}
    tale.add("model_response", {"message": message}, parent=asked.seq)
    assert owed(tale) == CallModel()


def test_an_open_request_of_an_older_writer_is_void_and_the_model_is_called_again() -> None:
    tale = begun()
    asked = tale.request()
    before = tale.state
    assert before.open_request == asked.seq
    tale.resumed()
    assert tale.state.open_request is None
    assert owed(tale) == CallModel()
    tale.response(text("too late"), parent=asked.seq)
    assert tale.state.messages() == [{"role": "user", "content": "hello"}]


def test_what_is_owed_has_one_order() -> None:
    tale = begun()
    tale.turn(tool_use("run"), tool_use("ask"), tool_use("fly"))
    tale.call("ask")
    tale.call("fly")
    tale.add("decision_requested", {"call": {"call_id": "ask", "announced_by": 4}})
    assert runs(tale.state) == [("run", 1)]
    tale.call("run")
    tale.result("run")
    assert isinstance(tale.state.next, Decide)
    assert [call.call_id for call in tale.state.next.calls] == ["ask"]
    tale.result("ask")
    assert owed(tale) == RunTools(())
    tale.result("fly")
    assert owed(tale) == CallModel()
    tale.add("session_ended", {"status": "failed", "error": "no more"})
    assert owed(tale) == Ended("failed")


def test_an_undecided_call_that_no_model_announced_waits_for_a_person_too() -> None:
    tale = begun()
    tale.call("own", announced_by=None)
    assert owed(tale) == CallModel()
    tale.add("decision_requested", {"call": {"call_id": "own"}, "question": "and?"})
    assert isinstance(tale.state.next, Decide)


def test_a_ruling_rerun_covers_the_one_start_after_it() -> None:
    tale = begun()
    tale.turn(tool_use("a", x=1))
    tale.call("a", on_resume="rerun")
    key = state_key(tale)
    tale.resumed()
    assert runs(tale.state) == []
    tale.rule()
    assert runs(tale.state) == [("a", 2)]
    assert state_key(tale) == key
    tale.call("a", attempt=2, on_resume="rerun")
    assert runs(tale.state) == []
    tale.resumed()
    tale.rule()
    assert runs(tale.state) == [("a", 3)]


def state_key(tale: Tale) -> list[str]:
    found = tale.state.next
    if isinstance(found, RunTools) and found.calls:
        return [call.idempotency_key for call in found.calls]
    earlier = Tale()
    for event in tale.events[:4]:
        earlier.state = state.apply(earlier.state, event)
    return state_key(earlier)


def test_repeated_call_ids_in_different_turns_are_different_calls() -> None:
    tale = begun()
    first = tale.turn(tool_use("0", x=1))
    tale.call("0")
    tale.result("0", "first")
    second = tale.turn(tool_use("0", x=2))
    assert runs(tale.state) == [("0", 1)]
    tale.call("0")
    tale.result("0", "second")
    outputs = [m["content"][0]["content"] for m in tale.state.messages()[2::2]]
    assert outputs == ["first", "second"]
    assert tale.state.call(first.seq, "0") is None
    known = tale.state.call(second.seq, "0")
    assert known is not None
    assert known.result is not None
    assert known.result.output == Raw(b'"second"')


def test_repeated_call_ids_in_one_response_are_told_apart_by_a_number() -> None:
    tale = begun()
    tale.turn(tool_use("x", n=1), tool_use("x", n=2), tool_use("x-2", n=3))
    assert isinstance(tale.state.next, RunTools)
    assert [(c.call_id, c.arguments["n"]) for c in tale.state.next.calls] == [
        ("x", 1),
        ("x-3", 2),
        ("x-2", 3),
    ]
    tale.call("x-3")
    tale.result("x-3", "two")
    contents = [block["content"] for block in tale.state.messages()[-1]["content"]]
    assert contents[1] == "two"


def test_the_first_result_of_a_call_stays() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.call("a")
    tale.result("a", "first")
    tale.result("a", "second")
    tale.call("a", attempt=2)
    assert tale.state.messages()[-1]["content"][0]["content"] == "first"
    known = tale.state.call(4, "a")
    assert known is not None
    assert known.result is not None
    assert known.result.output == Raw(b'"first"')
    assert owed(tale) == CallModel()


def test_a_start_that_nobody_ruled_leaves_an_undecided_call_undecided() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.add("decision_requested", {"call": {"call_id": "a", "announced_by": 4}})
    tale.call("a")
    assert isinstance(tale.state.next, Decide)


def test_a_result_without_its_announcement_finds_the_call_it_answers() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.call("a")
    tale.add("tool_result", {"call_id": "a", "output": "found"})
    assert tale.state.messages()[-1]["content"][0]["content"] == "found"


def test_a_call_without_announcement_stays_out_of_the_context_and_its_result_is_kept() -> None:
    tale = begun()
    before = tale.state.messages()
    tale.call("own", announced_by=None, arguments={"x": 1}, once="mail")
    known = tale.state.effect("mail")
    assert known is not None
    assert known.phase == "running"
    tale.result("own", {"sent": True}, announced_by=None)
    known = tale.state.effect("mail")
    assert known is not None
    assert known.result is not None
    assert (known.name, known.arguments) == ("t", Raw(b'{"x":1}'))
    assert known.result.output == Raw(b'{"sent":true}')
    assert tale.state.call(None, "own") == known
    assert tale.state.messages() == before
    tale.call("own", announced_by=None, attempt=2)
    assert tale.state.calls == ()


def test_a_new_main_response_ends_calls_that_never_started_but_not_those_that_run() -> None:
    tale = begun()
    first = tale.turn(tool_use("idle"), tool_use("busy"))
    tale.call("busy")
    tale.turn(text("I go on"))
    assert [call.call_id for call in tale.state.calls] == ["busy"]
    assert owed(tale) == AwaitUser()
    tale.result("busy", "late", announced_by=first.seq)
    assert tale.state.calls == ()
    results = tale.state.messages()[2]["content"]
    assert [block["content"] for block in results] == ["This call has no result yet.", "late"]


def test_calls_that_an_import_left_behind_do_not_block_the_session() -> None:
    tale = Tale()
    tale.user("hello")
    for _ in range(2):
        asked = tale.add("model_request", {"model": "m"})
        said = tale.response(tool_use("orphan"), parent=asked.seq)
        tale.call("orphan", announced_by=said.seq)
    tale.add("session_imported", {"format": "claude-code", "id": "x", "key": "k"})
    assert tale.state.status == "suspended"
    assert tale.state.lineage.imported is not None
    assert tale.state.key == "k"
    assert [call.seq for call in tale.state.calls] == [7]
    tale.resumed()
    tale.rule()
    assert isinstance(tale.state.next, Decide)
    assert len(tale.state.next.calls) == 1


def test_a_message_that_came_during_the_model_call_stands_behind_the_answer() -> None:
    tale = begun()
    tale.request()
    tale.user("one more thing")
    tale.response(text("hi"), tool_use("a"))
    said = [message["content"] for message in tale.state.messages()]
    assert said[0] == "hello"
    assert said[1][0] == text("hi")
    assert said[2][0]["tool_use_id"] == "a"
    assert said[3] == "one more thing"
    tale.call("a")
    tale.result("a")
    assert owed(tale) == CallModel()


def test_an_answer_given_while_the_user_spoke_leaves_the_model_owing() -> None:
    tale = begun()
    tale.request()
    tale.user("one more thing")
    tale.response(text("hi"))
    assert owed(tale) == CallModel()


@pytest.mark.parametrize("blank", ["", "  \n", [], [{"type": "text", "text": " "}], None])
def test_a_message_that_says_nothing_owes_nothing_and_is_not_sent(blank: object) -> None:
    tale = Tale()
    tale.started()
    tale.user(blank)
    assert owed(tale) == AwaitUser()
    assert tale.state.messages() == []


def test_side_calls_count_tokens_and_change_nothing_else() -> None:
    tale = begun()
    tale.turn(text("hi"), usage={"input_tokens": 3, "output_tokens": 2})
    before = tale.state
    asked = tale.request(
        {"model": "s", "messages": [{"role": "user", "content": "title?"}]}, purpose="side"
    )
    tale.response(
        text("A title"),
        parent=asked.seq,
        usage={
            "input_tokens": 10,
            "output_tokens": 1,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": None,
        },
    )
    assert tale.state.messages() == before.messages()
    assert owed(tale) == before.next
    assert tale.state.model == "m"
    assert tale.state.params == before.params
    assert tale.state.usage == Usage(13, 3, 7, 0)


def test_a_cost_is_summed_where_responses_tell_one_and_unset_where_none_does() -> None:
    tale = begun()
    tale.turn(text("hi"), usage={"input_tokens": 3})
    free = tale.state
    assert free.usage.dollars is None
    assert b"cost" not in state.encode(free)
    for cost in (0.1, 0.2, 0, "1", True, -1, {"total": 1}, 1e300):
        tale.turn(text("hi"), usage={"input_tokens": 1, "cost": cost})
    assert tale.state.usage.dollars == 0.3
    assert tale.state.usage.input_tokens == 11
    assert state.decode(state.encode(tale.state)).usage == tale.state.usage


@pytest.mark.parametrize("usage", ["lots", {"input_tokens": "3"}, {"input_tokens": -1}, [1], None])
def test_usage_that_cannot_be_read_counts_as_nothing(usage: object) -> None:
    tale = begun()
    tale.turn(text("hi"), usage=usage)
    assert tale.state.usage == Usage()


def test_statuses_and_what_ended_the_session_are_told() -> None:
    tale = begun()
    assert tale.state.status == "running"
    tale.add("session_suspended", {"reason": "SIGTERM", "inbox": 9})
    assert (tale.state.status, tale.state.reason, tale.state.inbox) == ("suspended", "SIGTERM", 9)
    tale.resumed()
    assert (tale.state.status, tale.state.reason, tale.state.writer) == ("running", None, 2)
    tale.add("session_ended", {"status": "completed", "result": {"n": 1}, "inbox": 3})
    assert (tale.state.status, tale.state.result) == ("completed", Raw(b'{"n":1}'))
    assert tale.state.inbox == 9
    tale.add("session_reopened", {"writer": {"number": 3, "id": "w3"}})
    assert tale.state.status == "running"
    assert tale.state.writers == ((1, 1), (4, 2), (6, 3))
    assert (tale.state.writer, tale.state.writer_id) == (3, "w3")


def test_a_writer_number_that_is_not_higher_changes_no_writer() -> None:
    tale = begun()
    tale.add("session_resumed", {"writer": {"number": 1, "id": "again"}})
    assert (tale.state.writer, tale.state.writer_id, tale.state.writers) == (1, "w1", ((1, 1),))


def test_a_fork_is_nobodys_and_waits_even_when_its_source_had_ended() -> None:
    tale = Tale("sess_fork")
    tale.started(key="source", labels={"job": "a"})
    tale.user("hello", inbox=12)
    tale.request()
    tale.add("session_ended", {"status": "completed"})
    tale.add("session_forked", {"session": "sess_source", "seq": 4, "labels": {"try": "2"}})
    assert (tale.state.status, tale.state.key, tale.state.inbox) == ("suspended", None, 0)
    assert tale.state.labels == {"job": "a", "try": "2"}
    assert tale.state.open_request is None
    assert tale.state.lineage.forked_from == Forked("sess_source", 4)
    assert owed(tale) == CallModel()


def test_a_forks_usage_is_its_own() -> None:
    tale = begun()
    tale.turn(text("hi"), usage={"input_tokens": 3, "output_tokens": 2, "cost": 0.5})
    used = tale.state.usage
    assert used == Usage(3, 2, cost=0.5)
    tale.add("session_forked", {"session": "sess_source", "seq": tale.state.seq})
    assert tale.state.usage == Usage()
    tale.turn(text("on"), usage={"input_tokens": 7, "output_tokens": 1})
    assert tale.state.usage == Usage(7, 1)


def test_a_child_knows_the_call_that_opened_it() -> None:
    tale = Tale()
    tale.started(parent={"session": "sess_p", "call_id": "c", "announced_by": 4, "more": 1})
    assert tale.state.lineage.parent == Parent("sess_p", "c", 4)
    other = Tale()
    other.started(parent="nonsense")
    assert other.state.lineage.parent is None


def test_values_once_and_checkpoints_answer_by_name_and_the_first_record_stays() -> None:
    tale = begun()
    for at in range(100):
        tale.add("value_recorded", {"name": f"v{at}", "value": at})
    tale.add("value_recorded", {"name": "v7", "value": "again"})
    tale.user("task", once="task")
    tale.add("checkpoint", {"label": "a", "data": 1})
    tale.add("checkpoint", {"label": "b", "data": {"n": 2}})
    assert [tale.state.value(f"v{at}") for at in (0, 7, 99)] == [Raw(b"0"), Raw(b"7"), Raw(b"99")]
    assert tale.state.value("v100") is None
    assert tale.state.was_said("task")
    assert not tale.state.was_said("other")
    assert tale.state.checkpoint == state.Mark("b", Raw(b'{"n":2}'), tale.state.seq)


def test_a_refused_inbox_item_is_taken_too() -> None:
    tale = begun()
    tale.put(payloads.InboxRefused(inbox=5, why="unreadable"))
    assert tale.state.inbox == 5


def test_events_are_counted_by_type_and_errors_beside_them() -> None:
    tale = begun()
    tale.turn(tool_use("a"), error="Overloaded")
    tale.turn(tool_use("a"))
    tale.call("a")
    tale.result("a", "no", outcome="error")
    tale.add("my_type", {})
    counts = tale.state.counts
    assert (counts["errors"], counts["my_type"], counts["model_request"]) == (2, 1, 2)
    assert sum(counts.values()) - counts["errors"] == tale.state.seq


def test_types_without_number_do_not_swell_the_state() -> None:
    tale = begun()
    for at in range(state.MOST_TYPES + 50):
        tale.add(f"type_{at}", {})
    assert len(tale.state.counts) == state.MOST_TYPES + 1
    assert tale.state.counts["other"] == 52


def test_a_summary_replaces_what_was_before_and_keeps_results_with_their_calls() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.call("a")
    tale.result("a", "found")
    tale.turn(text("so"))
    last = tale.user("next")
    tale.add("compact", {"summary": "we met", "keep_from": last.seq})
    assert [m["content"] for m in tale.state.messages()] == ["we met", "next"]
    other = begun()
    said = other.turn(tool_use("a"))
    other.call("a")
    other.result("a", "found")
    other.add("compact", {"summary": "we met", "keep_from": said.seq + 1})
    assert [m["content"] for m in other.state.messages()] == ["we met"]
    third = begun()
    third.turn(tool_use("a"))
    third.call("a")
    third.result("a", "found")
    third.add("compact", {"summary": "we met", "keep_from": 4})
    assert [m["role"] for m in third.state.messages()] == ["user", "assistant", "user"]


def test_a_summary_never_parts_results_that_the_harness_wrote_itself_from_their_calls() -> None:
    tale = begun()
    said = tale.turn(tool_use("a"))
    tale.call("a")
    tale.result("a", "found")
    messages = tale.state.messages()
    messages[-1]["content"].append(text("be brief"))
    asked = tale.request({"messages": messages})
    tale.response(text("so"))
    tale.add("compact", {"summary": "we met", "keep_from": asked.seq})
    kept = tale.state.messages()
    assert kept[0]["content"] == "we met"
    assert kept[1:3] == messages[1:]
    assert said.seq == 4


def test_a_summary_made_during_a_model_call_keeps_what_came_during_it_behind_the_answer() -> None:
    tale = begun()
    tale.request()
    last = tale.user("one more thing")
    tale.add("compact", {"summary": "we met", "keep_from": last.seq})
    tale.response(text("hi"))
    assert [m["content"] for m in tale.state.messages()] == [
        "we met",
        [text("hi")],
        "one more thing",
    ]


def test_compacting_an_answered_conversation_owes_no_model_call() -> None:
    tale = begun()
    tale.turn(text("hi"))
    tale.add("compact", {"summary": "we met", "keep_from": 99})
    assert owed(tale) == AwaitUser()


def test_a_compaction_may_leave_messages_in_the_place_of_what_was_before() -> None:
    tale = begun()
    tale.turn(text("hi"))
    rest = [{"role": "user", "content": "do it"}, {"role": "assistant", "content": "half done"}]
    last = tale.user("next")
    compact = {"summary": "we met", "keep_from": last.seq, "rest": rest}
    tale.add("compact", {**compact, "provider": "openai-chat"})
    said = [(m["role"], m["content"]) for m in tale.state.messages("openai-chat")]
    assert said == [("user", "do it"), ("assistant", "half done"), ("user", "next")]
    assert owed(tale) == CallModel()


def test_a_rewind_takes_the_last_turns_out_of_the_context_and_owes_nothing_for_them() -> None:
    tale = begun()
    tale.turn(text("hi"))
    before = tale.state.messages()
    left = tale.user("read it")
    tale.turn(tool_use("a"))
    tale.call("a")
    tale.add("rewind", {"to": left.seq})
    assert tale.state.messages() == before
    assert owed(tale) == AwaitUser()
    tale.result("a", "late")
    assert tale.state.messages() == before
    tale.user("no, write it")
    assert tale.state.messages() == [*before, {"role": "user", "content": "no, write it"}]
    assert owed(tale) == CallModel()


def test_an_answer_to_a_question_that_was_taken_back_never_enters_the_context() -> None:
    tale = begun()
    tale.turn(text("hi"))
    before = tale.state.messages()
    last = tale.user("and this?")
    tale.request()
    tale.add("rewind", {"to": last.seq})
    assert owed(tale) == AwaitUser()
    tale.response(text("late"))
    assert tale.state.messages() == before
    assert owed(tale) == AwaitUser()


def test_after_a_rewind_what_was_said_before_it_still_waits_for_its_answer() -> None:
    tale = begun()
    last = tale.user("and this?")
    tale.add("rewind", {"to": last.seq})
    assert owed(tale) == CallModel()
    tale.request()
    later = tale.user("quick")
    tale.add("rewind", {"to": later.seq})
    tale.response(text("hi"))
    assert [m["role"] for m in tale.state.messages()] == ["user", "assistant"]
    assert owed(tale) == AwaitUser()


def test_a_request_composed_before_the_context_changed_is_recorded_and_changes_nothing() -> None:
    tale = begun()
    old = tale.state
    tale.turn(text("hi"))
    tale.user("again")
    tale.put(context.refer(old, {"messages": [{"role": "user", "content": "other"}]}))
    assert [m["content"] for m in tale.state.messages()] == ["hello", [text("hi")], "again"]
    assert owed(tale) == CallModel()
