"""Messages in OpenAI's Chat Completions format: which calls are read, how entries are written."""

import json
from typing import Any

import pytest
from msgspec import Raw

from flightlog import usage as tokens
from flightlog.messages import anthropic, openai_chat, provider, turn, view
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent, Slot
from flightlog.wire import carry
from flightlog.wire.payload import Outcome
from tests.sdk.tale import chat, function_call, text


def written(entry: Entry) -> list[Any]:
    return [carry.unpack(line) for line in view.written(entry, openai_chat).lines]


def answer(message: object) -> Any:
    found = written(Answer(1, carry.pack(message), "openai-chat"))
    return found[0] if found else None


def sent(message: object) -> list[Any]:
    return written(Sent(1, carry.pack(message), "openai-chat"))


def result(output: object, outcome: Outcome = "ok") -> Any:
    [line] = written(Results(1, (Slot("c", outcome, carry.pack(output)),), "openai-chat"))
    assert (line.pop("role"), line.pop("tool_call_id")) == ("tool", "c")
    return line.pop("content")


def announced(message: object) -> list[tuple[str, str, Any]]:
    found = openai_chat.reply(carry.pack(message)).calls
    return [(call.call_id, call.name, carry.unpack(call.input)) for call in found]


def test_the_calls_of_a_response_and_of_a_bare_message_are_its_tool_calls_in_order() -> None:
    response = chat(None, function_call("a", "ls", '{"path":"/"}'), function_call("b", "rm", ""))
    expected = [("a", "ls", {"path": "/"}), ("b", "rm", {})]
    assert announced(response) == expected
    assert announced(response["choices"][0]["message"]) == expected


def test_a_custom_tools_input_is_passed_on_as_the_text_it_is() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": '{"x":1}'}}
    assert announced(chat(None, call)) == [("a", "patch", '{"x":1}')]
    assert answer(chat(None, call))["tool_calls"] == [call]


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("{", "{"),
        ('{"a":1}}', '{"a":1}}'),
        ("[1]", [1]),
        ('"x"', "x"),
        ("null", None),
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ('{"a":"\\ud800"}', {"a": "\ud800"}),
        ('{"a":NaN}', pytest.approx({"a": float("nan")}, nan_ok=True)),
        ("[" * 5000, "[" * 5000),
        ("[" * 400 + "]" * 400, "[" * 400 + "]" * 400),
    ],
)
def test_arguments_that_are_no_object_stay_visible_and_stop_nothing(
    arguments: object, value: object
) -> None:
    assert announced(chat(None, function_call("a", "t", arguments))) == [("a", "t", value)]


@pytest.mark.parametrize("arguments", ["{", '{"a": 1}', "", "[1]", " "])
def test_arguments_are_written_back_as_the_text_that_they_were(arguments: str) -> None:
    call = function_call("a", "t", arguments)
    assert answer(chat(None, call))["tool_calls"] == [call]


def test_arguments_that_a_server_gave_as_a_value_are_written_as_text() -> None:
    [call] = answer(chat(None, function_call("a", "t", {"x": 1})))["tool_calls"]
    assert call == function_call("a", "t", '{"x":1}')


@pytest.mark.parametrize(
    "message",
    [
        None, "text", 7, [], {}, {"choices": None}, {"choices": []}, {"choices": [None]},
        {"choices": [{"message": None}]}, {"tool_calls": 3}, {"tool_calls": [None, {}, {"id": 3}]},
        {"tool_calls": [function_call("", "t"), function_call("a", "")]},
        {"error": {"message": "overloaded"}},
    ],
)  # fmt: skip
def test_what_is_no_call_announces_nothing_and_is_not_written(message: object) -> None:
    assert openai_chat.reply(carry.pack(message)).calls == ()
    assert answer(message) is None


@pytest.mark.parametrize("raw", [b"{", b'{"choices":"\xff"}', b'{"content":"\\udfff"}'])
def test_json_that_cannot_be_read_announces_nothing(raw: bytes) -> None:
    assert openai_chat.reply(Raw(raw)).calls == ()
    assert openai_chat.native(Answer(1, Raw(raw), "openai-chat")) == provider.Shown()


def test_repeated_ids_are_numbered_in_the_calls_and_in_the_message_alike() -> None:
    message = chat(None, function_call("0", "a"), function_call("0", "b"))
    assert [call[0] for call in announced(message)] == ["0", "0-2"]
    assert [call["id"] for call in answer(message)["tool_calls"]] == ["0", "0-2"]


def test_facts_of_a_response_are_its_usage_and_its_finish_reason() -> None:
    found = openai_chat.read_response({**chat("hi"), "usage": {"prompt_tokens": 3}})
    assert (bytes(found.usage), found.stop) == (b'{"prompt_tokens":3}', "stop")
    assert openai_chat.read_response("odd") == provider.Facts(Raw(b"null"), None)
    assert openai_chat.reply(carry.pack(chat("hi", finish="length"))).stop == "length"


def test_tokens_read_from_the_cache_are_not_counted_twice() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
    }
    assert tokens.of(carry.pack(usage)) == tokens.Usage(40, 7, 60, 0)
    assert tokens.of(carry.pack({"prompt_tokens": 5})) == tokens.Usage(5)
    assert tokens.of(carry.pack({"prompt_tokens": 5, "completion_tokens": -1})) == tokens.NONE


def test_an_answer_is_written_without_the_fields_that_no_request_takes() -> None:
    found = answer({**chat("hi")["choices"][0]["message"], "audio": None, "function_call": None})
    assert found == {"role": "assistant", "content": "hi"}
    heard = answer({"role": "assistant", "content": None, "audio": {"id": "au", "data": "x"}})
    assert heard == {"role": "assistant", "content": None, "audio": {"id": "au"}}


def test_signed_reasoning_of_a_compatible_server_is_written_byte_for_byte() -> None:
    details = [{"type": "reasoning.encrypted", "data": "aB+/==", "id": None, "index": 0}]
    message = {"role": "assistant", "content": "hi", "reasoning_details": details}
    assert answer(message) == message


def test_a_refusal_is_what_the_model_said() -> None:
    refusal = [{"type": "refusal", "refusal": "I can't."}]
    message = {"role": "assistant", "content": None, "refusal": "I can't."}
    assert answer(message) == {"role": "assistant", "content": refusal}


@pytest.mark.parametrize("blank", ["", " ", "\n\t", None, []])
def test_empty_content_is_never_written(blank: object) -> None:
    assert answer(chat(blank)) is None
    assert answer(chat(blank, function_call("a")))["content"] is None
    assert written(Said(1, carry.pack(blank))) == []
    assert sent({"role": "user", "content": blank}) == []
    assert result(blank) == turn.NOTHING


def test_each_result_is_a_message_of_its_own_in_the_order_of_the_calls() -> None:
    slots = (Slot("a", "ok", carry.pack("one")), Slot("b"), Slot("c", "ok", carry.pack({"n": 1})))
    found = openai_chat.native(Results(1, slots, "openai-chat"))
    assert list(found.messages) == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": turn.PENDING},
        {"role": "tool", "tool_call_id": "c", "content": '{"n":1}'},
    ]
    assert (found.asks, found.gives) == ((), ("a", "b", "c"))


@pytest.mark.parametrize("outcome", ["error", "unknown", "cancelled"])
def test_a_result_that_is_none_says_so_in_words(outcome: Outcome) -> None:
    assert result("disk full", outcome) == "Error: disk full"
    for nothing in (None, "", [text(" ")]):
        found = result(nothing, outcome)
        assert found.startswith("Error: ")
        assert len(found) > len("Error: ")


def test_pictures_in_a_result_are_named_as_a_tool_message_holds_only_words() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    found = result([text("look"), image, {"type": "document", "source": {}}])
    assert [part["type"] for part in found] == ["text"] * 3
    assert "image" in found[1]["text"]
    assert "document" in found[2]["text"]


def test_what_a_user_says_in_anthropics_blocks_is_written_in_openais() -> None:
    data = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    stray = {"type": "tool_result", "tool_use_id": "x", "content": "y"}
    blocks = [text("see"), {"type": "image", "source": data}, stray, text("")]
    [found] = written(Said(1, carry.pack(blocks)))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert found["content"] == [text("see"), picture]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi", "name": "eve"},
        {"role": "user", "content": [text("hi"), {"type": "file", "file": {"file_id": "f"}}]},
        {"role": "developer", "content": [text("be kind")]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "tool", "tool_call_id": "c", "content": [text("x"), text("y")]},
        {"role": "assistant", "content": "", "tool_calls": [function_call("c")]},
        {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
)
def test_a_valid_message_is_written_as_it_was_sent(message: dict[str, Any]) -> None:
    assert sent(message) == [message]
    assert list(sent(message)[0]) == list(message)


def test_lone_surrogates_are_replaced_visibly() -> None:
    assert written(Said(1, carry.pack("a\ud83d b")))[0]["content"] == "a\ufffd b"
    assert written(Said(1, carry.pack("\ud83d\ude00")))[0]["content"] == "\U0001f600"
    assert result({"a\ud800": ["\udfff"]}) == '{"a\ufffd":["\ufffd"]}'
    assert answer(chat("\ud800"))["content"] == "\ufffd"


@pytest.mark.parametrize("arguments", ['["\\ud800"]', '{"\\ud800":1}', "[1e999]", f"[{2**80}]"])
def test_arguments_that_are_json_only_to_some_do_not_stop_another_providers_view(
    arguments: str,
) -> None:
    message = carry.pack(chat(None, function_call("a", "ls", arguments)))
    answer = Answer(4, message, "openai-chat")
    (line,) = view.written(answer, anthropic).lines
    assert json.loads(line)["content"][0]["name"] == "ls"
