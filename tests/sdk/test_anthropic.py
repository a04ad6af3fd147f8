"""Messages in Anthropic's format: which calls are read from them, and how entries are written."""

import json
from typing import Any

import pytest
from msgspec import Raw

from flightlog.messages import anthropic, provider, turn, view
from flightlog.messages.segment import Answer, Entry, Results, Said, Sent, Slot
from flightlog.wire import carry
from flightlog.wire.payload import Outcome
from tests.sdk.tale import begun, text, tool_use


def written(entry: Entry) -> Any:
    lines = view.written(entry, anthropic).lines
    return carry.unpack(lines[0]) if lines else None


def answer(*blocks: object) -> Any:
    found = written(Answer(1, carry.pack({"role": "assistant", "content": list(blocks)})))
    return None if found is None else found["content"]


def result(output: object, outcome: Outcome = "ok") -> dict[str, Any]:
    slot = Slot("c", outcome, carry.pack(output))
    block: dict[str, Any] = written(Results(1, (slot,)))["content"][0]
    assert (block.pop("type"), block.pop("tool_use_id")) == ("tool_result", "c")
    return block


def test_the_calls_of_a_message_are_its_tool_use_blocks_in_order() -> None:
    message = {
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            tool_use("a", "ls", path="/"),
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "mcp_tool_use", "id": "m", "name": "x", "input": {}},
            tool_use("b", "rm"),
        ],
        "stop_reason": "tool_use",
    }
    found = anthropic.reply(carry.pack(message))
    assert [(call.call_id, call.name, bytes(call.input)) for call in found.calls] == [
        ("a", "ls", b'{"path":"/"}'),
        ("b", "rm", b"{}"),
    ]
    assert found.stop == "tool_use"


@pytest.mark.parametrize(
    "content",
    [
        None,
        "text",
        7,
        [1, None, "x", [], {}],
        [{"type": "tool_use"}, {"type": "tool_use", "id": 3, "name": "x"}],
        [{"type": "tool_use", "id": "", "name": "x"}, {"type": "tool_use", "id": "x"}],
    ],
)
def test_blocks_that_are_no_calls_are_none(content: object) -> None:
    assert anthropic.reply(carry.pack({"content": content})).calls == ()


def test_a_good_call_among_broken_blocks_is_still_a_call() -> None:
    content = [None, tool_use("a", n=2**80), 3]
    [call] = anthropic.reply(carry.pack({"content": content, "stop_reason": 4})).calls
    assert carry.unpack(call.input) == {"n": 2**80}


@pytest.mark.parametrize("raw", [b"null", b"[]", b'"x"', b"{", b'{"content":"\xff"}', b"{}"])
def test_a_message_that_is_none_announces_nothing(raw: bytes) -> None:
    assert anthropic.reply(Raw(raw)) == provider.Reply()


def test_repeated_ids_are_numbered_and_no_other_id_is_taken() -> None:
    assert provider.unique(["a", "b"]) == ["a", "b"]
    assert provider.unique(["a", "a", "a-2", "a", "b"]) == ["a", "a-3", "a-2", "a-4", "b"]
    assert answer(tool_use("a", n=1), tool_use("a", n=2)) == [
        tool_use("a", n=1),
        tool_use("a-2", n=2),
    ]


def test_facts_of_a_response_are_its_usage_and_its_stop_reason() -> None:
    found = anthropic.read_response({"usage": {"input_tokens": 3}, "stop_reason": "end_turn"})
    assert (bytes(found.usage), found.stop) == (b'{"input_tokens":3}', "end_turn")
    assert anthropic.read_response("odd") == provider.Facts(Raw(b"null"), None)


def test_signed_blocks_are_written_byte_for_byte() -> None:
    signed = {"type": "thinking", "thinking": 'a "b"\n\t é ☃ \u2028', "signature": "aB+/=="}
    hidden = {"type": "redacted_thinking", "data": "xyz=="}
    assert answer(signed, hidden, text("so"), tool_use("a")) == [
        signed,
        hidden,
        text("so"),
        tool_use("a"),
    ]


def test_a_message_never_ends_in_thinking() -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert answer(text("so"), signed, signed) == [text("so")]
    assert answer(signed) is None


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_empty_text_is_never_written(blank: str) -> None:
    assert answer(text(blank)) is None
    assert answer(text(blank), text("so")) == [text("so")]
    assert written(Said(1, carry.pack(blank))) is None
    assert written(Said(1, carry.pack([text(blank), text("so")])))["content"] == [text("so")]
    assert result([text(blank), text("so")]) == {"content": [text("so")]}
    assert result(blank) == {}


def test_calls_that_cannot_be_answered_are_left_out() -> None:
    assert answer(text("so"), {"type": "tool_use", "id": 3, "name": "x", "input": {}}) == [
        text("so")
    ]


def test_a_call_whose_input_is_no_object_is_written_with_an_empty_one() -> None:
    assert answer({**tool_use("a"), "input": "x"}) == [tool_use("a")]


def test_results_without_a_call_are_left_out_of_what_the_user_said() -> None:
    stray = {"type": "tool_result", "tool_use_id": "x", "content": "y"}
    assert written(Said(1, carry.pack([stray]))) is None
    assert written(Said(1, carry.pack([stray, text("so")])))["content"] == [text("so")]


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("fine", "fine"),
        (
            [text("a"), {"type": "image", "source": {}}],
            [text("a"), {"type": "image", "source": {}}],
        ),
        ({"n": 1}, '{"n":1}'),
        ([1, 2], "[1,2]"),
        ([], "[]"),
        ([text("a"), {"type": "chart"}], '[{"type":"text","text":"a"},{"type":"chart"}]'),
        (0, "0"),
        (False, "false"),
    ],
)
def test_an_output_is_written_as_text_as_blocks_or_as_json(output: object, content: object) -> None:
    assert result(output) == {"content": content}


@pytest.mark.parametrize("outcome", ["error", "unknown", "cancelled"])
def test_a_result_that_is_none_says_so_in_words(outcome: Outcome) -> None:
    assert result("disk full", outcome) == {"content": "disk full", "is_error": True}
    for nothing in (None, "", [text(" ")]):
        found = result(nothing, outcome)
        assert found["is_error"] is True
        assert found["content"]
    assert result(None) == {}


def test_a_call_without_result_has_a_placeholder() -> None:
    block = written(Results(1, (Slot("c"),)))["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "c", "content": turn.PENDING}


def test_logs_with_other_whitespace_and_escapes_are_written_alike() -> None:
    loose = json.dumps({"role": "user", "content": "é\u2028"}, indent=2).encode()
    tight = '{"role":"user","content":"é\u2028"}'.encode()
    for raw in (loose, tight):
        assert view.written(Sent(1, Raw(raw)), anthropic).lines == (tight,)


def test_a_view_that_would_begin_with_the_assistant_begins_with_a_notice() -> None:
    tale = begun()
    tale.events.clear()
    tale.state = type(tale.state)()
    asked = tale.add("model_request", {"model": "m"})
    tale.response(text("hi"), parent=asked.seq)
    messages = tale.state.messages()
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert "not recorded" in messages[0]["content"]
    tale.user("and?")
    again = tale.request()
    tale.response(text("so"), parent=again.seq)
    assert len(tale.state.messages()) == 4
    assert len(tale.state.entries) == 3


def test_content_that_is_neither_text_nor_blocks_is_written_as_json() -> None:
    assert written(Said(1, carry.pack({"task": 1})))["content"] == '{"task":1}'
    assert written(Said(1, carry.pack("a\ud800")))["content"] == "a\ufffd"
    assert written(Answer(1, carry.pack({"content": "plain"})))["content"] == "plain"
    assert written(Answer(1, carry.pack({"content": {"odd": 1}}))) is None
