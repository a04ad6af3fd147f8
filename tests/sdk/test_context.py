"""Requests by reference: what is stored, that it comes back exactly, and what it costs."""

import copy
import hashlib
import json
import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from flightlog import context, state
from flightlog.errors import InvalidValue
from flightlog.messages.segment import Sent
from flightlog.wire import carry, payload
from flightlog.wire.payload import ModelRequest
from tests.sdk import pairing_anthropic, pairing_openai
from tests.sdk.tale import Tale, begun, text, tool_use
from tests.sdk.wild import JSON, tales

Request = dict[str, Any]

CHECKERS = {"anthropic": pairing_anthropic.faults, "openai-chat": pairing_openai.faults}


def stored(request: Request, tale: Tale, **options: Any) -> ModelRequest:
    """The payload of a request as a reader of the log decodes it."""
    raw = payload.encode(context.refer(tale.state, request, **options))
    found = payload.decode("model_request", raw)
    assert isinstance(found, ModelRequest)
    return found


def proved(request: Request, tale: Tale, **options: Any) -> ModelRequest:
    """As `stored`, once the request came back byte for byte, key order included."""
    found = stored(request, tale, **options)
    rebuilt = context.rebuild(tale.state, found)
    assert bytes(carry.pack(rebuilt)) == bytes(carry.pack(request))
    return found


def edits(found: ModelRequest) -> list[tuple[int, int]]:
    assert found.context is not None
    return found.context.edits


def conversation() -> Tale:
    tale = begun()
    tale.turn(text("I look"), tool_use("a", x=1), tool_use("b", x=2))
    for call_id in ("a", "b"):
        tale.call(call_id)
        tale.result(call_id, f"result of {call_id}")
    tale.turn(text("done"))
    tale.user("go on")
    return tale


def test_a_request_of_the_whole_context_stores_no_message() -> None:
    tale = conversation()
    found = proved({"model": "m", "messages": tale.state.messages()}, tale)
    assert (edits(found), found.rest) == ([], [])


def test_the_digest_is_that_of_the_whole_request_as_compact_json() -> None:
    tale = conversation()
    request = {"system": "é", "messages": tale.state.messages(), "model": "m", "max_tokens": 5}
    found = stored(request, tale)
    compact = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()
    assert found.context is not None
    assert found.context.digest == hashlib.sha256(compact).hexdigest()
    assert found.context.upto == tale.state.seq
    assert found.context.view == "anthropic/1"


def test_messages_that_the_harness_builds_itself_are_recognised() -> None:
    tale = conversation()
    own = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [text("I look"), tool_use("a", x=1), tool_use("b", x=2)]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "result of a"},
                {"type": "tool_result", "tool_use_id": "b", "content": "result of b"},
            ],
        },
        {"role": "assistant", "content": ({"type": "text", "text": "done"},)},
        {"role": "user", "content": "go on"},
    ]
    assert edits(proved({"model": "m", "messages": own}, tale)) == []


def test_a_reminder_is_stored_and_stays_in_the_context() -> None:
    tale = conversation()
    messages = [*tale.state.messages(), {"role": "user", "content": "be brief"}]
    found = proved({"messages": messages}, tale)
    assert edits(found) == [(0, 5), (-1, 1)]
    tale.put(found)
    assert tale.state.messages() == messages


def test_what_is_changed_in_many_messages_is_no_patch_where_these_would_not_fit() -> None:
    tale = begun()
    told = [{"role": "user", "content": f"{n} " + "said " * 100} for n in range(200)]
    tale.put(proved({"messages": told}, tale))
    changed = [{**each, "content": each["content"] + "new " * 200} for each in told]
    found = proved({"messages": changed}, tale)
    assert 0 < len(msgspec.json.encode(found.patches)) <= context.PATCHES
    assert len(found.patches) + len(found.rest) == 200
    tale.put(found)
    assert tale.state.messages() == changed


@pytest.mark.parametrize("output", ["b", "b" * 400])
def test_a_message_of_which_a_result_is_still_to_come_is_no_base_of_a_patch(output: str) -> None:
    tale = begun()
    tale.turn(tool_use("a"), tool_use("b"))
    for call_id in "ab":
        tale.call(call_id)
    tale.result("a", "A" * 400)
    messages = tale.state.messages()
    messages[-1]["content"].insert(0, text("<date>today</date>"))
    found = proved({"messages": messages}, tale)
    tale.result("b", output)  # it ends while the request is on its way
    tale.put(found)
    assert (found.patches, len(found.rest)) == ([], 1)
    [_, _, results] = tale.state.messages()
    assert text("<date>today</date>") in results["content"]
    assert "A" * 400 in str(results)


def test_a_side_request_in_between_changes_nothing_of_what_a_field_becomes() -> None:
    tale, (one, two, three) = begun(), (f"{each * 3_000}0" for each in "ABC")
    for system in (one, two):
        tale.put(proved({"system": system, "messages": []}, tale))
    again = proved({"system": one[:-1] + "1", "messages": []}, tale)
    tale.put(stored({"system": three, "messages": []}, tale, purpose="side"))
    tale.put(again)
    assert again.param_patches
    assert msgspec.json.decode(tale.state.params["system"]) == one[:-1] + "1"


def test_no_field_may_be_called_as_the_messages_that_lead() -> None:
    with pytest.raises(InvalidValue, match="may be called"):
        context.refer(begun().state, {"$lead": 5, "messages": []})


def test_so_it_is_with_fields() -> None:
    tale = begun()
    request = {f"p{n}": "so " * 1_000 for n in range(20)}
    tale.put(proved({**request, "messages": []}, tale))
    changed = {name: value + "new " * 2_000 for name, value in request.items()}
    found = proved({**changed, "messages": []}, tale)
    assert 0 < len(msgspec.json.encode(found.param_patches)) <= context.PATCHES + 200
    assert len(found.param_patches) + len(found.params) == 20


def test_a_trimmed_and_changed_history_becomes_the_context() -> None:
    tale = conversation()
    old = tale.state.messages()
    messages = [{"role": "user", "content": "earlier: nothing"}, old[3], old[4]]
    found = proved({"messages": messages}, tale)
    assert edits(found) == [(-1, 1), (3, 2)]
    tale.put(found)
    assert tale.state.messages() == messages
    tale.response(text("fine"))
    assert tale.state.messages()[3] == {"role": "assistant", "content": [text("fine")]}


def test_messages_in_another_order_and_twice_come_back_so() -> None:
    tale = conversation()
    old = tale.state.messages()
    messages = [old[4], old[0], old[1], old[2], old[0], old[0], old[1], old[2]]
    found = proved({"messages": messages}, tale)
    assert found.rest == []
    tale.put(found)
    assert tale.state.messages() == messages


def test_the_notice_that_a_view_begins_with_is_kept_when_the_harness_keeps_it() -> None:
    tale = Tale()
    asked = tale.add("model_request", {"model": "m"})
    tale.response(text("hi"), parent=asked.seq)
    notice, answer = tale.state.messages()
    extra = {"role": "user", "content": "so?"}
    for messages in ([notice, extra, answer], [notice, answer, extra], [extra, answer]):
        other = copy.copy(tale)
        other.events = list(tale.events)
        other.put(proved({"messages": messages}, other))
        assert other.state.messages() == messages


def test_of_equal_messages_the_next_one_is_copied() -> None:
    tale = Tale()
    for said in ("ok", "a", "c", "ok", "b"):
        tale.user(said)
    messages = tale.state.messages()
    del messages[2], messages[0]
    assert edits(proved({"messages": messages}, tale)) == [(1, 1), (3, 2)]


def test_no_messages_at_all_is_not_the_whole_context() -> None:
    tale = conversation()
    tale.put(proved({"messages": []}, tale))
    assert tale.state.messages() == []
    assert edits(proved({"messages": []}, Tale())) == []


def test_a_result_that_comes_after_an_edited_request_finds_its_place() -> None:
    tale = begun()
    tale.turn(tool_use("slow"))
    tale.call("slow")
    said = tale.state.last_response
    messages = [*tale.state.messages(), {"role": "user", "content": "without it, please"}]
    tale.put(proved({"messages": messages}, tale))
    tale.response(text("then so"))
    tale.result("slow", "here", announced_by=said)
    assert tale.state.messages()[2]["content"][0]["content"] == "here"


def test_cache_marks_are_kept_with_the_request_and_never_pile_up_in_the_context() -> None:
    tale = begun()
    for turn in range(6):
        plain = tale.state.messages()
        assert b"cache_control" not in bytes(carry.pack(plain))
        marked = copy.deepcopy(plain)
        if isinstance(marked[-1]["content"], list):
            marked[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        found = proved({"model": "m", "messages": marked}, tale)
        assert (edits(found), found.rest) == ([], [])
        assert found.context is not None
        assert [mark[:2] for mark in found.context.marks] == ([(2 * turn, 0)] if turn else [])
        tale.put(found)
        said = tale.response(tool_use(f"c{turn}"))
        tale.call(f"c{turn}")
        tale.result(f"c{turn}", "x" * 100, announced_by=said.seq)


def test_a_cache_mark_elsewhere_in_a_block_comes_back_where_it_was() -> None:
    tale = begun()
    block = {"type": "text", "cache_control": {"type": "ephemeral"}, "text": "hello"}
    found = proved({"messages": [{"role": "user", "content": [block]}]}, tale)
    assert found.context is not None
    assert found.context.marks == []


def test_fields_are_stored_when_they_change_and_only_then() -> None:
    tale = begun()
    request = {"model": "m", "system": "be kind", "tools": [{"name": "t"}], "max_tokens": 9}
    first = proved({**request, "messages": tale.state.messages()}, tale)
    assert list(first.params) == ["system", "tools", "max_tokens"]
    assert first.order == ["model", "system", "tools", "max_tokens", "messages"]
    tale.put(first)
    tale.response(text("hi"))
    tale.user("more")
    again = proved({**request, "messages": tale.state.messages()}, tale)
    assert (again.params, again.unset, again.order) == ({}, [], None)
    del request["tools"]
    changed = proved({**request, "system": "short", "messages": tale.state.messages()}, tale)
    assert (changed.params, changed.unset) == ({"system": Raw(b'"short"')}, ["tools"])
    tale.put(changed)
    assert tale.state.params == {"system": Raw(b'"short"'), "max_tokens": Raw(b"9")}
    assert tale.state.order == ("model", "system", "max_tokens", "messages")


def test_a_request_without_messages_is_all_fields() -> None:
    tale = begun()
    for request in ({"model": "m", "input": "hello"}, {"messages": "hello"}, {"model": 3}, {}):
        found = proved(request, tale)
        assert edits(found) == []
        tale.put(found)
        assert tale.state.messages() == [{"role": "user", "content": "hello"}]


def test_side_calls_are_by_reference_too_and_leave_context_and_fields_alone() -> None:
    tale = conversation()
    before = tale.state
    messages = [*tale.state.messages(), {"role": "user", "content": "a title?"}]
    found = proved({"model": "s", "messages": messages, "system": "x"}, tale, purpose="side")
    assert edits(found) == [(0, 5), (-1, 1)]
    tale.put(found)
    assert (tale.state.entries, tale.state.params) == (before.entries, before.params)
    assert (tale.state.model, tale.state.open_request) == ("m", None)


def test_what_redaction_hides_is_in_no_part_of_the_payload_and_the_rest_is_still_found() -> None:
    def redact(leaf: str) -> str:
        return leaf.replace("hunter2", "***")

    tale = begun()
    tale.add("user_message", {"content": carry.pack("pw hunter2", redact=redact)})
    request = {
        "model": "m",
        "system": "hunter2",
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "user", "content": "pw hunter2"},
            {"role": "user", "content": [{**text("hunter2"), "cache_control": {"x": "hunter2"}}]},
        ],
    }
    found = stored(request, tale, redact=redact)
    assert edits(found) == [(0, 2), (-1, 1)]
    assert b"hunter2" not in bytes(payload.encode(found))
    assert context.rebuild(tale.state, found) == carry.unpack(carry.pack(request, redact=redact))


def test_a_secret_in_a_cache_mark_is_redacted_though_the_message_is_known() -> None:
    tale = Tale()
    tale.user([text("hello")])
    [message] = tale.state.messages()
    message["content"][0]["cache_control"] = {"x": "hunter2"}
    found = stored({"messages": [message]}, tale, redact=lambda leaf: leaf.replace("hunter2", "*"))
    assert edits(found) == []
    assert b"hunter2" not in bytes(payload.encode(found))


def test_messages_of_the_state_are_not_redacted_again() -> None:
    tale = begun()
    found = stored({"messages": tale.state.messages()}, tale, redact=lambda leaf: leaf + "!")
    assert edits(found) == []


@pytest.mark.parametrize(
    ("recorded", "sent"), [(None, math.nan), ("aGk=", b"hi"), (True, 1), (1, 1.0), (0, False)]
)
def test_values_that_only_look_like_what_is_recorded_are_stored(recorded: Any, sent: Any) -> None:
    tale = Tale()
    tale.user([{"type": "odd", "value": recorded}])
    [message] = tale.state.messages()
    assert edits(proved({"messages": [message]}, tale)) == []
    other = {"role": "user", "content": [{"type": "odd", "value": sent}]}
    assert edits(proved({"messages": [other]}, tale)) == [(-1, 1)]


def test_marked_values_are_recognised_and_rebuilt() -> None:
    tale = Tale()
    tale.user([{"type": "odd", "value": b"\x00"}, {"type": "odd", "value": 2**70}])
    assert tale.state.messages()[0]["content"][0]["value"] == b"\x00"
    assert edits(proved({"messages": tale.state.messages()}, tale)) == []
    literal = json.loads(bytes(carry.pack(tale.state.messages())))
    assert edits(proved({"messages": literal}, tale)) == [(-1, 1)]


@pytest.mark.parametrize("bad", [{"messages": [object()]}, {"x": {1, 2}}, {3: "x"}])
def test_what_has_no_json_form_is_refused_by_name(bad: dict[Any, Any]) -> None:
    with pytest.raises(InvalidValue, match="request"):
        context.refer(begun().state, bad)


def test_a_user_message_that_came_in_between_is_neither_sent_nor_lost() -> None:
    tale = begun()
    request = {"messages": [*tale.state.messages(), {"role": "user", "content": "p.s."}]}
    asked = stored(request, tale)
    before = tale.state
    tale.user("wait")
    tale.put(asked)
    tale.response(text("hi"))
    assert [m["content"] for m in tale.state.messages()] == ["hello", "p.s.", [text("hi")], "wait"]
    assert context.rebuild(before, asked) == request


def test_only_the_state_that_the_request_was_made_of_rebuilds_it() -> None:
    tale = begun()
    found = stored({"messages": tale.state.messages()}, tale)
    tale.user("more")
    with pytest.raises(context.CannotRebuild, match="seq 2"):
        context.rebuild(tale.state, found)
    with pytest.raises(context.CannotRebuild, match="not recorded"):
        context.rebuild(tale.state, ModelRequest())


def test_a_request_that_was_tampered_with_is_not_rebuilt() -> None:
    tale = conversation()
    request = {"model": "m", "messages": [*tale.state.messages(), {"role": "user", "content": "x"}]}
    found = stored(request, tale)
    assert found.context is not None
    replace = msgspec.structs.replace
    for forged in (
        replace(found, model="n"),
        replace(found, order=["model"]),
        replace(found, order=["model", "messages", "nothing"]),
        replace(found, rest=[]),
        replace(found, rest=[Raw(b'"x"')]),
        replace(found, context=replace(found.context, edits=[(0, 4), (-1, 1)])),
        replace(found, context=replace(found.context, marks=[(9, 9, Raw(b"1"))])),
    ):
        with pytest.raises(context.CannotRebuild):
            context.rebuild(tale.state, forged)


@settings(max_examples=200, deadline=None)
@given(tales(most=12), st.randoms(use_true_random=False), JSON)
def test_any_edit_of_any_context_comes_back_exactly_and_becomes_the_context_if_it_is_valid(
    tale: Tale, chance: random.Random, extra: Any
) -> None:
    messages: list[Any] = tale.state.messages()
    for _ in range(chance.randrange(5)):
        at = chance.randrange(len(messages) + 1)
        match chance.randrange(4):
            case 0:
                messages.insert(at, {"role": "user", "content": extra})
            case 1:
                del messages[at : at + chance.randrange(3)]
            case 2:
                chance.shuffle(messages)
            case _:
                messages[at:at] = messages[at : at + 2]
    found = proved({"model": "m", "messages": messages, "extra": extra}, tale)
    tale.put(found)
    taken, faults = tale.state.messages(), CHECKERS[tale.state.provider]
    if faults(messages):
        assert faults(taken) == []
    else:
        assert bytes(carry.pack(taken)) == bytes(carry.pack(messages))


def test_what_a_request_adds_is_in_the_context_as_an_entry_of_its_own() -> None:
    tale = begun()
    asked = tale.request({"messages": [{"role": "user", "content": "other"}]})
    assert list(tale.state.entries) == [Sent(asked.seq, Raw(b'{"role":"user","content":"other"}'))]


def unchanged(messages: list[Any], _: int) -> list[Any]:
    return messages


def loop(turns: int, *, change: Any = unchanged) -> Tale:
    """A harness that keeps its own list and passes all of it each time; 1 KiB a message."""
    words, tools = "word " * 200, [{"name": "t", "description": "long " * 1000}]
    tale, messages = Tale(), list[dict[str, Any]]()
    tale.started()
    tale.user(words)
    messages.append({"role": "user", "content": words})
    for turn in range(turns):
        sent = change(copy.deepcopy(messages), turn)
        tale.request({"model": "m", "system": words, "tools": tools, "messages": sent})
        content = [text(words), tool_use(f"c{turn}", n=turn)]
        tale.response(*content)
        tale.call(f"c{turn}", arguments={"n": turn})
        tale.result(f"c{turn}", words)
        answer = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": words}
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": [answer]},
        ]
    return tale


def size(tale: Tale, type: str | None = None) -> int:
    return sum(len(each.body) for each in tale.events if type in (None, each.type))


def test_a_hundred_turns_store_each_message_once_and_a_constant_per_request() -> None:
    tale = loop(100)
    requests = [len(each.body) for each in tale.events if each.type == "model_request"]
    assert max(requests[1:]) < 400
    held = len(bytes(carry.pack(tale.state.messages())))
    assert size(tale, "model_response") + size(tale, "tool_result") < 1.4 * held
    assert size(tale, "model_request") < 60_000


def marked(messages: list[Any], _: int) -> list[Any]:
    if isinstance(messages[-1]["content"], list):
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return messages


def reminded(messages: list[Any], turn: int) -> list[Any]:
    return [*messages, {"role": "user", "content": [text(f"turn {turn}")]}]


def trimmed(messages: list[Any], _: int) -> list[Any]:
    return messages[:1] + messages[-20:]


@pytest.mark.parametrize("change", [marked, reminded, trimmed])
def test_a_harness_that_edits_its_context_each_turn_stores_a_constant_too(change: Any) -> None:
    tale = loop(100, change=change)
    requests = [len(each.body) for each in tale.events if each.type == "model_request"]
    assert max(requests[20:]) < 700


def test_every_request_of_a_log_can_be_rebuilt_from_its_own_prefix() -> None:
    tale, found = loop(30, change=reminded), state.initial()
    states = [found]
    for each in tale.events:
        if each.type == "model_request":
            asked = payload.decode(each.type, each.raw)
            assert isinstance(asked, ModelRequest)
            assert asked.context is not None
            context.rebuild(states[asked.context.upto], asked)
        found = state.apply(found, each)
        states.append(found)
