"""A context in the format of either provider, whichever wrote the log."""

from typing import Any

import pytest

from flightlog import calls as calling
from flightlog import context, event, state
from flightlog.step import AwaitUser, RunTools
from flightlog.wire import payload
from tests.sdk import pairing_anthropic, pairing_openai
from tests.sdk.tale import Tale, begun, chat, function_call, text, tool_use

Messages = list[dict[str, Any]]

CHECKERS = {"anthropic": pairing_anthropic.faults, "openai-chat": pairing_openai.faults}


def assert_valid(tale: Tale) -> None:
    assert pairing_anthropic.faults(tale.state.messages("anthropic")) == []
    assert pairing_openai.faults(tale.state.messages("openai-chat")) == []


def ask(tale: Tale, messages: Messages | None = None, **options: Any) -> payload.ModelRequest:
    """A request of an OpenAI harness, proved to come back exactly."""
    form = options.pop("provider", "openai-chat")
    sent = tale.state.messages(form) if messages is None else messages
    request = {"model": "m", "messages": sent}
    found = context.refer(tale.state, request, provider=form, **options)
    assert context.rebuild(tale.state, found) == request
    tale.put(found)
    return found


def conversation() -> Tale:
    """Two calls at once, of an OpenAI model."""
    tale = begun()
    ask(tale)
    calls = [function_call("a", "ls", '{"path":"/"}'), function_call("b", "rm", "{")]
    tale.answered(chat("I look", *calls, finish="tool_calls"))
    for call_id in ("b", "a"):
        tale.call(call_id)
        tale.result(call_id, f"result of {call_id}")
    return tale


def test_an_openai_model_drives_the_loop() -> None:
    tale = begun()
    ask(tale)
    tale.answered(chat(None, function_call("a", "ls", '{"path":"/"}'), finish="tool_calls"))
    step = tale.state.next
    assert isinstance(step, RunTools)
    assert [(call.name, call.arguments) for call in step.calls] == [("ls", {"path": "/"})]
    assert tale.state.messages()[-1]["content"] == "This call has no result yet."
    tale.call("a")
    tale.result("a", "etc")
    ask(tale)
    tale.answered(chat("done"))
    assert tale.state.next == AwaitUser()
    assert [m["role"] for m in tale.state.messages()] == ["user", "assistant", "tool", "assistant"]


def test_without_a_name_the_messages_are_in_the_format_of_the_last_main_request() -> None:
    tale = begun()
    assert tale.state.messages() == tale.state.messages("anthropic")
    ask(tale, provider="openai-chat", purpose="side")
    assert tale.state.provider == "anthropic"
    tale = conversation()
    assert tale.state.messages() == tale.state.messages("openai-chat")
    assert tale.state.messages() != tale.state.messages("anthropic")
    ask(tale, provider="anthropic")
    assert tale.state.messages() == tale.state.messages("anthropic")


def test_a_provider_without_a_format_of_its_own_is_read_as_anthropic() -> None:
    tale = begun()
    ask(tale, provider="bedrock")
    tale.response(text("hi"), tool_use("a"))
    assert len(tale.state.calls) == 1
    assert_valid(tale)


def test_what_openai_wrote_is_read_by_anthropic() -> None:
    tale = conversation()
    assert tale.state.messages("anthropic") == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": [
                text("I look"),
                {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "/"}},
                {"type": "tool_use", "id": "b", "name": "rm", "input": {"arguments": "{"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "result of a"},
                {"type": "tool_result", "tool_use_id": "b", "content": "result of b"},
            ],
        },
    ]


def test_what_anthropic_wrote_is_read_by_openai_without_what_only_anthropic_can_read() -> None:
    tale = begun()
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    server = [
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
    ]
    tale.turn(signed, *server, text("I look"), tool_use("a", x=1))
    tale.call("a")
    tale.result("a", "no such file", outcome="error")
    assert tale.state.messages("openai-chat") == [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [function_call("a", "t", '{"x":1}')],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Error: no such file"},
    ]


def test_signed_blocks_are_back_once_their_own_provider_is_asked_again() -> None:
    signed = {"type": "thinking", "thinking": 'a "b" ☃', "signature": "aB+/=="}
    tale = begun()
    tale.turn(signed, text("so"))
    tale.user("and?")
    ask(tale)
    tale.answered(chat("this"))
    assert tale.state.messages("anthropic")[1]["content"] == [signed, text("so")]
    assert_valid(tale)


def test_ids_and_names_that_the_other_provider_refuses_are_replaced_in_pairs() -> None:
    tale = begun()
    ask(tale)
    call_id = "functions.ls:0/" + "x" * 60
    tale.answered(chat(None, function_call(call_id, "fs.ls")))
    tale.call(call_id)
    tale.result(call_id, "etc")
    assert tale.state.messages()[1]["tool_calls"][0]["id"] == call_id
    _, asked, given = tale.state.messages("anthropic")
    [call], [result] = asked["content"], given["content"]
    assert call["id"] == result["tool_use_id"]
    assert (result["content"], call["name"][:6]) == ("etc", "fs_ls_")
    assert len(call["id"]) <= 40
    assert call["id"].replace("_", "").isalnum()


def test_the_system_message_is_the_requests_own_and_stored_when_it_changes() -> None:
    tale = begun()
    for turn, words in enumerate(["be kind", "be kind", "be brief"]):
        system = {"role": "system", "content": words}
        found = ask(tale, [system, *tale.state.messages("openai-chat")])
        assert found.rest == []
        assert ("$lead" in found.params) == (turn != 1)
        tale.answered(chat(f"answer {turn}"))
        tale.user("go on")
        assert [m["role"] for m in tale.state.messages()] == ["user", "assistant"] * (turn + 1) + [
            "user"
        ]
    found = ask(tale)
    assert found.unset == ["$lead"]


def test_a_request_of_nothing_but_a_system_message_comes_back() -> None:
    tale = begun()
    ask(tale, [{"role": "system", "content": "x"}])
    assert tale.state.messages() == []
    ask(tale, [])


def test_a_system_message_in_the_middle_is_kept_and_is_the_users_for_anthropic() -> None:
    tale = begun()
    reminder = {"role": "system", "content": "it is late"}
    ask(tale, [*tale.state.messages("openai-chat"), reminder])
    assert tale.state.messages()[-1] == reminder
    assert tale.state.messages("anthropic")[-1] == {"role": "user", "content": "it is late"}


@pytest.mark.parametrize("which", [0, 1])
def test_a_tool_message_that_the_harness_shortened_stays_so_in_both_formats(which: int) -> None:
    tale = conversation()
    messages = tale.state.messages()
    messages[2 + which]["content"] = "..."
    found = ask(tale, messages)
    assert len(found.rest) == 1
    assert tale.state.messages() == messages
    results = tale.state.messages("anthropic")[2]["content"]
    said = ["result of a", "result of b"]
    said[which] = "..."
    assert [block["content"] for block in results] == said
    assert_valid(tale)
    assert ask(tale).rest == []
    assert state.encode(state.decode(state.encode(tale.state))) == state.encode(tale.state)


@pytest.mark.parametrize("form", CHECKERS)
@pytest.mark.parametrize("cut", range(8))
def test_a_history_that_is_cut_anywhere_is_mended(cut: int, form: str) -> None:
    for part in (slice(cut, None), slice(0, cut)):
        tale = conversation()
        ask(tale, provider=form)
        again = {"content": [tool_use("c")]}
        tale.answered(again if form == "anthropic" else chat(None, function_call("c")))
        tale.call("c")
        tale.result("c")
        messages = tale.state.messages()[part]
        ask(tale, messages, provider=form)
        assert_valid(tale)
        if not CHECKERS[form](messages):
            assert tale.state.messages() == messages


def test_what_is_asked_with_a_mended_context_becomes_the_context_once() -> None:
    tale = begun()
    unanswered = {"role": "assistant", "content": None, "tool_calls": [function_call("x")]}
    ask(tale, [*tale.state.messages("openai-chat"), unanswered])
    tale.answered(chat("fine"))
    tale.user("go on")
    sent = [*tale.state.messages(), {"role": "user", "content": "remember"}]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "assistant", "user", "user"]
    assert len(ask(tale, sent).rest) == 1
    assert tale.state.messages() == sent


def test_an_answer_behind_what_was_mended_keeps_what_only_its_provider_can_read() -> None:
    tale = begun()
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    unanswered = {"role": "assistant", "content": [tool_use("x")]}
    ask(tale, [*tale.state.messages(), unanswered], provider="anthropic")
    tale.response(signed, text("so"))
    sent = [*tale.state.messages("openai-chat"), {"role": "user", "content": "remember"}]
    ask(tale, sent)
    assert tale.state.messages() == sent
    assert tale.state.messages("anthropic")[3]["content"] == [signed, text("so")]


def test_a_result_that_comes_after_a_reminder_finds_its_place() -> None:
    tale = begun()
    ask(tale)
    tale.answered(chat(None, function_call("a"), function_call("b")))
    tale.call("a")
    tale.result("a", "one")
    ask(tale, [*tale.state.messages(), {"role": "user", "content": "and?"}])
    tale.result("b", "two")
    assert [m["content"] for m in tale.state.messages()[2:]] == ["one", "two", "and?"]


def test_compaction_keeps_results_with_what_asked_for_them() -> None:
    tale = conversation()
    messages = tale.state.messages()
    messages[2]["content"] = "..."
    ask(tale, messages)
    tale.answered(chat("so"))
    tale.add("compact", {"summary": "all fine", "keep_from": 5})
    assert_valid(tale)
    assert tale.state.messages()[0] == {"role": "user", "content": "all fine"}


def test_a_request_by_rules_of_a_later_version_changes_no_context() -> None:
    tale = begun()
    before = tale.state.messages()
    made = payload.Context(upto=2, digest="", edits=[(0, 0)], view="anthropic/9")
    asked = payload.ModelRequest(context=made)
    with pytest.raises(context.CannotRebuild, match="anthropic/9"):
        context.rebuild(tale.state, asked)
    tale.put(asked)
    assert tale.state.messages() == before


def test_a_redacted_call_of_an_openai_model_is_never_run_after_its_process() -> None:
    tale = begun()
    ask(tale)
    tale.answered(chat(None, function_call("a", "t", '{"pw":"***"}')), cut=["a"])
    assert calling.find(tale.state.calls, tale.state.last_response, "a") is not None
    tale.resumed()
    assert tale.state.next == RunTools(())


def test_a_hundred_turns_of_an_openai_harness_store_each_message_once() -> None:
    tale = begun()
    system = {"role": "system", "content": "word " * 500}
    own: Messages = [{"role": "user", "content": "hello"}]
    sizes = list[int]()
    for turn in range(100):
        found = ask(tale, [system, *own])
        sizes.append(len(payload.encode(found)))
        answer = chat(None, function_call(f"c{turn}"))
        tale.answered(answer)
        tale.call(f"c{turn}")
        tale.result(f"c{turn}", "word " * 200)
        said = answer["choices"][0]["message"]
        own.append({"role": "assistant", "content": None, "tool_calls": said["tool_calls"]})
        own.append({"role": "tool", "tool_call_id": f"c{turn}", "content": "word " * 200})
    assert max(sizes[1:]) < 400
    assert tale.state.messages() == own
    assert all(isinstance(event.decode(each.body), event.Event) for each in tale.events)
