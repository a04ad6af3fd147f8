"""One line for every event, whatever it holds."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog import Blob, event
from flightlog.wire import carry, payload
from flightlog_recorder.cli.output import printable
from flightlog_recorder.inspect.telling import WIDTH, tell

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


NOTHING = "no words and no calls"


def told(type: str, said: object) -> str:
    raw = said if isinstance(said, msgspec.Raw) else carry.pack(said)
    made = event.compose(
        session_id="s",
        seq=1,
        type=type,
        payload=raw,
        prev=None,
        parent_seq=None,
        harness_version="",
    )
    return tell(made)


@pytest.mark.parametrize(
    ("type", "said", "line"),
    [
        ("user_message", {"content": "hello\nworld"}, "hello world"),
        ("user_message", {"content": "go", "origin": "schedule"}, "go · schedule"),
        (
            "user_message",
            {"content": Blob("ab" * 32, 1_234_567, "text")},
            "[1.2 MB of text, sha256 abababab…]",
        ),
        ("note", {"file": Blob("ab" * 32, 900)}, '{"file": "[900 bytes, sha256 abababab…]"}'),
        ("user_message", {"content": [{"type": "image", "source": 1}]}, "[image]"),
        ("model_request", {"model": "m", "purpose": "side"}, "m · on the side"),
        ("model_response", {"error": "overloaded"}, "error: overloaded"),
        ("tool_call", {"name": "sh", "call_id": "c", "arguments": {"a": 1}}, 'sh · {"a": 1}'),
        ("tool_call", {"name": "sh", "call_id": "c", "attempt": 2}, "sh · attempt 2"),
        ("tool_result", {"call_id": "c", "output": "x", "duration": 1.5}, "ok · 1.50 s · x"),
        ("session_ended", {"status": "failed", "error": "no"}, "failed · no"),
        ("session_forked", {"session": "s", "seq": 4}, "from s at seq 4"),
        ("value_recorded", {"name": "now", "value": 7}, "now = 7"),
        ("model_response", {"message": {"role": "assistant", "content": None}}, NOTHING),
        ("import_line", {"line": 7, "kind": "event_msg/x", "record": {}}, "event_msg/x · line 7"),
        ("import_line", {"line": 7}, '{"line": 7}'),
        ("never_heard_of", {"a": [1]}, '{"a": [1]}'),
        ("tool_call", {"no": "name"}, '{"no": "name"}'),
    ],
)
def test_an_event_is_told_in_a_line(type: str, said: object, line: str) -> None:
    assert told(type, said) == line


def test_a_models_calls_are_named_and_counted() -> None:
    blocks = [{"type": "text", "text": "look"}] + [
        {"type": "tool_use", "id": f"t{n}", "name": "sh", "input": {}} for n in range(2)
    ]
    message = {"role": "assistant", "content": blocks}
    said = {"message": message, "usage": {"output_tokens": 1200}}
    assert told("model_response", said) == "look · calls sh x2 · 1,200 tokens out"


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*payload.TYPES, "unknown"]), JSON)
def test_nothing_that_a_log_may_hold_breaks_the_line(type: str, said: object) -> None:
    line = told(type, said)
    assert "\n" not in line
    assert printable(line).isprintable()


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1))
def test_every_text_is_made_printable(text: str) -> None:
    assert printable(text).isprintable()


def test_long_texts_are_cut() -> None:
    assert len(told("user_message", {"content": "x" * 100_000})) <= WIDTH
