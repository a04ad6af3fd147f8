"""Random logs: what harnesses, people and broken producers may write, as plans for a `Tale`."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from flightlog import context
from flightlog.running import ruling
from flightlog.wire import payload
from flightlog.wire.payload import CallRef, Purpose
from tests.sdk.tale import Tale, function_call, text, tool_use

Draw = Callable[..., Any]

TYPES = [*payload.TYPES, "seal", "of_another_version"]
IDS = ["0", "0", "call_a", "x y", ""]
TEXTS = st.sampled_from(["", " \n", "hello", 'a "b"\n', "naïve ☃", "$flightlog", "cut \ud83d"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS | st.just(1.5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.one_of(
    st.builds(text, TEXTS),
    st.builds(tool_use, st.sampled_from(IDS), st.sampled_from(["ls", ""]), a=TEXTS | st.just([1])),
    st.just({"type": "document", "source": {"type": "text", "data": "QUJD"}, "context": [1, 2]}),
    st.just({"type": "thinking", "thinking": "", "signature": "c2ln"}),
    st.just({"type": "server_tool_use", "id": "0", "name": "web_search", "input": {}}),
    st.sampled_from([None, "text", {}, {"type": "tool_use"}, {"type": "tool_use", "id": 3}]),
)
TOOL_CALLS = st.one_of(
    st.builds(
        function_call,
        st.sampled_from(IDS),
        st.sampled_from(["ls", "fs.read", ""]),
        st.sampled_from(
            [
                '{"n":1}',
                ' {"a": "\\u2603", "n": 1.50}',
                "",
                "{",
                "[1]",
                '"\\ud800"',
                "null",
                {"n": 1},
                None,
            ]
        ),
    ),
    st.just({"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}),
    st.sampled_from([None, {}, {"id": 3}, {"id": "x", "function": None}]),
)
CHAT_CONTENT = st.one_of(st.none(), TEXTS, st.lists(st.builds(text, TEXTS), max_size=2), JSON)
REST = st.lists(
    st.sampled_from(
        [
            {"role": "user", "content": "go on"},
            {"role": "user", "content": [text("what"), {"type": "input_image"}]},
            {"role": "assistant", "content": "so"},
            {"role": "assistant", "content": None, "tool_calls": [function_call("0", "ls", "{}")]},
            {"role": "assistant", "content": [tool_use("0", "ls")]},
            {"role": "tool", "tool_call_id": "0", "content": "found"},
            {"role": "developer", "content": ""},
            None,
        ]
    ),
    max_size=4,
)
PROVIDERS = st.sampled_from(["anthropic", "openai-chat"])
# What a person may do to a request without breaking the provider's rules.
EDITS = st.sampled_from(["none", "remind", "cache", "system", "last turn", "elide", "side"])


@st.composite
def tales(draw: Draw, *, most: int = 25, careless: bool = False) -> Tale:
    """A log of a harness that keeps the rules, of people, and of foreign events in between.

    One that is `careless` also sends what no provider takes.
    """
    tale = Tale()
    if draw(st.booleans()):
        tale.started()
    steps = [_say, _ask, _answer, _call, _result, _resume, _decide, _oddity, _garbage]
    steps += [_ask_carelessly] if careless else []
    for step in draw(st.lists(st.sampled_from(steps), min_size=1, max_size=most)):
        step(draw, tale)
    return tale


def _say(draw: Draw, tale: Tale) -> None:
    content = draw(TEXTS | st.lists(st.builds(text, TEXTS), max_size=2) | JSON)
    tale.user(content, once=draw(st.sampled_from([None, "once"])))


def _ask(draw: Draw, tale: Tale) -> None:
    provider, how = draw(st.none() | PROVIDERS), draw(EDITS)
    messages = tale.state.messages(provider)
    request: dict[str, Any] = {"model": "m", "messages": messages}
    if how == "remind":
        messages.append({"role": "user", "content": [text("remember")]})
    if how == "cache" and messages and isinstance(messages[-1]["content"], list):
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    if how == "system":
        _prompt(draw, provider or tale.state.provider, request)
    if how == "elide":
        _elide(draw, messages)
    if how == "last turn":
        starts = [at for at, m in enumerate(messages) if isinstance(m["content"], str)]
        starts = [at for at in starts if messages[at]["role"] == "user"]
        request["messages"] = messages[starts[-1] :] if starts else messages
    purpose: Purpose = "side" if how == "side" else "main"
    tale.put(context.refer(tale.state, request, purpose=purpose, provider=provider))


def _prompt(draw: Draw, provider: str, request: dict[str, Any]) -> None:
    words = draw(st.sampled_from(["be kind", "be brief"]))
    if provider == "anthropic":
        request["system"] = words
    else:
        request["messages"].insert(0, {"role": "system", "content": words})


def _elide(draw: Draw, messages: list[Any]) -> None:
    """Shorten the output of a tool, as harnesses do when the context grows."""
    tools = [m for m in messages if m["role"] == "tool"]
    lists = [m["content"] for m in messages if isinstance(m["content"], list)]
    tools += [b for content in lists for b in content if b["type"] == "tool_result"]
    if tools:
        draw(st.sampled_from(tools))["content"] = "..."


def _ask_carelessly(draw: Draw, tale: Tale) -> None:
    provider = draw(PROVIDERS)
    messages: list[Any] = tale.state.messages(provider)
    if messages:
        del messages[draw(st.integers(0, len(messages) - 1))]
    at = draw(st.integers(0, len(messages)))
    odd = st.sampled_from(
        [
            {"role": "tool", "tool_call_id": "0", "content": "x"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "0"}]},
            {"role": "user", "content": [text("hm"), {"type": "tool_result", "tool_use_id": "0"}]},
            {"role": "assistant", "content": [tool_use("0")]},
            {"role": "assistant", "content": None, "tool_calls": [function_call("0", "t", "")]},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": ""},
            {"role": "user"},
            {"role": "assistant"},
        ]
    )
    messages[at:at] = draw(st.lists(odd | JSON, max_size=2) | st.just(messages[at : at + 2]))
    tale.put(context.refer(tale.state, {"messages": messages}, provider=provider))


def _answer(draw: Draw, tale: Tale) -> None:
    error = draw(st.sampled_from([None, None, None, "Overloaded"]))
    stop = draw(st.sampled_from([None, "end_turn", "pause_turn"]))
    cut = draw(st.sampled_from([[], ["0"]]))
    parent = tale.state.open_request or draw(st.integers(1, 30))
    usage = {"input_tokens": 3, "output_tokens": draw(st.sampled_from([1, None, "x"]))}
    fields = {"error": error, "stop": stop, "cut": cut, "usage": usage}
    if tale.state.provider == "anthropic" or draw(st.integers(0, 9)) == 0:
        tale.response(*draw(st.lists(BLOCKS, max_size=4)), parent=parent, **fields)
    else:
        tale.answered(draw(_chat_messages()), parent=parent, **fields)


@st.composite
def _chat_messages(draw: Draw) -> Any:
    message = {
        "role": "assistant",
        "content": draw(CHAT_CONTENT),
        "refusal": draw(st.sampled_from([None, None, "no"])),
        "annotations": [],
    }
    if draw(st.booleans()):
        message["tool_calls"] = draw(st.lists(TOOL_CALLS, max_size=4) | st.none())
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return draw(st.sampled_from([message, {"choices": [choice]}, {"choices": []}]))


def _call(draw: Draw, tale: Tale) -> None:
    known = draw(st.sampled_from([*tale.state.calls, None]))
    tale.call(
        known.call_id if known else draw(st.sampled_from(IDS)),
        announced_by=known.announced_by if known else draw(st.none() | st.integers(1, 9)),
        on_resume=draw(st.sampled_from(["ask", "fail", "rerun"])),
        attempt=known.attempt + 1 if known else 1,
    )


def _result(draw: Draw, tale: Tale) -> None:
    known = draw(st.sampled_from([*tale.state.calls, None]))
    tale.result(
        known.call_id if known else draw(st.sampled_from(IDS)),
        draw(JSON | st.lists(st.builds(text, TEXTS), max_size=2)),
        announced_by=known.announced_by if known else draw(st.none() | st.integers(1, 9)),
        outcome=draw(st.sampled_from(["ok", "ok", "error", "unknown", "cancelled"])),
    )


def _resume(draw: Draw, tale: Tale) -> None:
    if draw(st.booleans()):
        tale.add("session_suspended", {"reason": "closed"})
    tale.resumed()
    if draw(st.booleans()):
        tale.rule()


def _decide(draw: Draw, tale: Tale) -> None:
    known = draw(st.sampled_from([*tale.state.calls, None]))
    ref = known.ref if known else CallRef(call_id="0", announced_by=None)
    made = draw(st.sampled_from(["result", "rerun", "fail"]))
    for owed in ruling.on_decision(tale.state, ref, made, by="eve", inbox=tale.state.seq):
        tale.put(owed.payload, parent=owed.parent_seq)


def _oddity(draw: Draw, tale: Tale) -> None:
    seq = draw(st.integers(0, 30))
    rest = {"rest": draw(REST), "provider": draw(PROVIDERS)}
    ref = {"call_id": draw(st.sampled_from(IDS)), "announced_by": draw(st.none() | st.just(seq))}
    kind, odd = draw(
        st.sampled_from(
            [
                ("compact", {"summary": draw(TEXTS), "keep_from": seq}),
                ("compact", {"summary": "s", "keep_from": seq, **rest}),
                ("rewind", {"to": seq}),
                ("checkpoint", {"label": "l", "data": draw(JSON)}),
                ("value_recorded", {"name": draw(TEXTS), "value": draw(JSON)}),
                ("decision_requested", {"call": ref}),
                ("decision_made", {"call": ref, "ruling": "rerun", "by": "policy"}),
                ("hook_call", {"hook": "h"}),
                ("hook_decision", {"reason": "r"}),
                ("session_forked", {"session": "s", "seq": seq}),
                ("session_reopened", {"writer": {"number": seq, "id": "w"}}),
                ("session_ended", {"status": "completed", "result": draw(JSON)}),
            ]
        )
    )
    tale.add(kind, odd)


def _garbage(draw: Draw, tale: Tale) -> None:
    raw = st.sampled_from([b"{}", b"[]", b"0", b'{"call_id":7}', b'{"writer":{"number":"x"}}'])
    tale.add(draw(st.sampled_from(TYPES)), draw(JSON | raw.map(Raw)))
