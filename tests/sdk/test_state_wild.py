"""What holds for every log, also for those that nobody should write."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from flightlog import context, event, state
from flightlog.event import Event
from flightlog.messages import providers
from flightlog.state import SessionState
from flightlog.wire import carry, payload
from tests.sdk import pairing_anthropic, pairing_openai
from tests.sdk.tale import TS, Tale
from tests.sdk.wild import JSON, TYPES, tales

WILD = settings(max_examples=150, deadline=None)
SPANS = st.lists(st.tuples(st.integers(-2, 6), st.integers(-2, 2**40)), max_size=4)

CHECKERS = {"anthropic": pairing_anthropic.faults, "openai-chat": pairing_openai.faults}


def fold(events: list[Event], start: SessionState | None = None) -> SessionState:
    found = state.initial() if start is None else start
    for each in events:
        found = state.apply(found, each)
    return found


@WILD
@given(tales(careless=True))
def test_a_snapshot_at_any_seq_and_the_tail_give_the_same_bytes_as_a_full_replay(
    tale: Tale,
) -> None:
    whole, found = state.encode(tale.state), state.initial()
    for at, each in enumerate(tale.events):
        found = state.apply(found, each)
        stored = state.encode(found)
        assert state.encode(state.decode(stored)) == stored
        assert state.encode(fold(tale.events[at + 1 :], state.decode(stored))) == whole


@WILD
@given(tales())
def test_an_event_that_is_in_the_state_changes_nothing(tale: Tale) -> None:
    for each in tale.events:
        assert state.apply(tale.state, each) is tale.state


@WILD
@given(tales())
def test_applying_leaves_every_older_state_as_it_was(tale: Tale) -> None:
    states, found = [(state.initial(), state.encode(state.initial()))], state.initial()
    for each in tale.events:
        found = state.apply(found, each)
        found.messages("anthropic")
        found.messages("openai-chat")
        states.append((found, state.encode(found)))
    assert all(state.encode(old) == bytes_then for old, bytes_then in states)


@WILD
@given(tales())
def test_two_futures_of_one_state_do_not_meet(tale: Tale) -> None:
    middle = len(tale.events) // 2
    shared = fold(tale.events[:middle])
    other = Tale()
    other.events, other.state = tale.events[:middle], shared
    for _ in range(70):
        other.user("another way")
    assert state.encode(fold(tale.events[middle:], shared)) == state.encode(tale.state)


def assert_valid(found: SessionState) -> None:
    assert pairing_anthropic.faults(found.messages("anthropic")) == []
    assert pairing_openai.faults(found.messages("openai-chat")) == []


@settings(max_examples=300, deadline=None)
@given(tales(careless=True))
def test_the_context_satisfies_both_providers_rules_at_every_cut(tale: Tale) -> None:
    found = state.initial()
    for each in tale.events:
        found = state.apply(found, each)
        assert_valid(found)


@settings(max_examples=200, deadline=None)
@given(tales(careless=True))
def test_a_valid_request_of_any_provider_comes_back_and_becomes_the_context(tale: Tale) -> None:
    """Without its cache marks and the system messages that lead it."""
    found, before = state.initial(), [state.initial()]
    for each in tale.events:
        found = state.apply(found, each)
        before.append(found)
        asked = payload.decode(each.type, each.raw)
        if not isinstance(asked, payload.ModelRequest) or asked.context is None:
            continue
        sent = context.rebuild(before[asked.context.upto], asked)["messages"]
        if asked.purpose == "main" and not CHECKERS[asked.provider](sent):
            assert found.messages() == [unmarked(m) for m in sent if m["role"] != "system"]


def unmarked(message: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(message["content"], list):
        return message
    kept = [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]
    return {**message, "content": kept}


@WILD
@given(tales())
def test_what_is_owed_can_be_told_at_every_cut(tale: Tale) -> None:
    found = state.initial()
    for each in tale.events:
        found = state.apply(found, each)
        assert found.next == state.decode(state.encode(found)).next


@WILD
@given(st.lists(st.tuples(st.sampled_from(TYPES), JSON), max_size=20))
def test_no_payload_stops_the_fold(found: list[tuple[str, Any]]) -> None:
    tale = Tale()
    for kind, said in found:
        tale.add(kind, said)
    assert tale.state.seq == len(found)
    assert tale.state.digest == (tale.events[-1].digest if found else None)


@WILD
@given(tales(most=8), SPANS, st.integers(-1, 40), st.lists(JSON, max_size=3))
def test_edits_of_any_shape_can_be_folded(
    tale: Tale, edits: list[tuple[int, int]], upto: int, rest: list[Any]
) -> None:
    found = payload.Context(upto=upto, digest="", edits=edits)
    raw = [carry.pack(each) for each in rest]
    tale.put(payload.ModelRequest(context=found, rest=raw))
    tale.response({"type": "text", "text": "so"})
    tale.state.messages()
    assert state.encode(state.decode(state.encode(tale.state))) == state.encode(tale.state)


def test_json_that_cannot_be_read_is_left_out_of_the_view_and_stops_nothing() -> None:
    deep = b"[" * 900 + b"]" * 900
    found = state.initial()
    for seq, (kind, said) in enumerate(
        [
            ("user_message", b'{"content":"\xff"}'),
            ("user_message", b'{"content":[{"type":"text","text":"\\udfff"}]}'),
            ("user_message", b'{"content":' + deep + b"}"),
            ("model_request", b"{}"),
            ("model_response", b'{"message":{"content":[{"type":"text","text":"\xff"}]}}'),
        ],
        start=1,
    ):
        body = b'{"type":"tail"}'
        found = state.apply(
            found,
            Event(
                v=1, session_id="s", seq=seq, ts=TS, type=kind, raw=Raw(said), parent_seq=seq - 1,
                harness_version="1", prev=None, body=body, digest=event.digest_of(body),
            ),
        )  # fmt: skip
    assert found.seq == 5
    assert all(isinstance(message, dict) for message in found.messages())


def read_from_lines(found: SessionState, name: str) -> list[Any]:
    lines = found.lines(providers.get(name))
    return [message for line in lines if isinstance(message := carry.unpack(line), dict)]


@settings(max_examples=300, deadline=None)
@given(tales(careless=True))
def test_the_messages_are_what_their_lines_say_at_every_cut(tale: Tale) -> None:
    found = state.initial()
    for each in tale.events:
        found = state.apply(found, each)
        for name in CHECKERS:
            assert found.messages(name) == read_from_lines(found, name)


ESCAPED = [
    '[{"type":"text","text":"\\u0024flightlog"}]',
    '[{"type":"text","text":"x","\\u0024flightlog":"str","value":"aGk="}]',
    '[{"type":"image","source":{"\\u0024flightlog":"str","value":"aGk="}}]',
    '[{"type":"text","text":" "},{"type":"text","text":"x"}]',
    '[{"type":"text","text":"x","text":" "}]',
    '"\\ufdd0 no blob"',
    "[]",
    '"\\t"',
]


@pytest.mark.parametrize("content", ESCAPED)
@pytest.mark.parametrize("name", CHECKERS)
def test_content_of_other_writers_is_the_same_as_value_and_as_line(content: str, name: str) -> None:
    tale = Tale()
    tale.add("user_message", Raw(b'{"content":' + content.encode() + b"}"))
    assert tale.state.messages(name) == read_from_lines(tale.state, name)


@WILD
@given(tales())
def test_whoever_changes_messages_changes_no_others(tale: Tale) -> None:
    for name in CHECKERS:
        before, mine = tale.state.messages(name), tale.state.messages(name)
        for message in mine:
            content = message["content"]
            for block in content if isinstance(content, list) else ():
                block.clear()
            message.clear()
        assert tale.state.messages(name) == before
