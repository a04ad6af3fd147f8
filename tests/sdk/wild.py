"""Random logs: what harnesses, people and broken producers may write, as plans for a `Tale`."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec import Raw

from flightlog import context, payload, ruling
from flightlog.payload import CallRef
from tests.sdk.tale import Tale, text, tool_use

Draw = Callable[..., Any]

TYPES = [*payload.TYPES, "seal", "of_another_version"]
IDS = ["0", "0", "call_a", "x y", ""]
TEXTS = st.sampled_from(["", " \n", "hello", "naïve ☃", "$flightlog"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS | st.just(1.5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
BLOCKS = st.one_of(
    st.builds(text, TEXTS),
    st.builds(tool_use, st.sampled_from(IDS), st.sampled_from(["ls", ""])),
    st.just({"type": "thinking", "thinking": "", "signature": "c2ln"}),
    st.just({"type": "server_tool_use", "id": "0", "name": "web_search", "input": {}}),
    st.sampled_from([None, "text", {}, {"type": "tool_use"}, {"type": "tool_use", "id": 3}]),
)
# What a person may do to a request without breaking the provider's rules.
EDITS = st.sampled_from(["none", "remind", "cache", "system", "last turn", "side"])


@st.composite
def tales(draw: Draw, *, most: int = 25) -> Tale:
    """A log of a harness that keeps the rules, of people, and of foreign events in between."""
    tale = Tale()
    if draw(st.booleans()):
        tale.started()
    steps = [_say, _ask, _answer, _call, _result, _resume, _decide, _oddity, _garbage]
    for step in draw(st.lists(st.sampled_from(steps), min_size=1, max_size=most)):
        step(draw, tale)
    return tale


def _say(draw: Draw, tale: Tale) -> None:
    content = draw(TEXTS | st.lists(st.builds(text, TEXTS), max_size=2) | JSON)
    tale.user(content, once=draw(st.sampled_from([None, "once"])))


def _ask(draw: Draw, tale: Tale) -> None:
    messages, how = tale.state.messages(), draw(EDITS)
    request: dict[str, Any] = {"model": "m", "messages": messages}
    if how == "remind":
        messages.append({"role": "user", "content": [text("remember")]})
    if how == "cache" and messages and isinstance(messages[-1]["content"], list):
        messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    if how == "system":
        request["system"] = draw(TEXTS)
    if how == "last turn":
        starts = [at for at, m in enumerate(messages) if isinstance(m["content"], str)]
        starts = [at for at in starts if messages[at]["role"] == "user"]
        request["messages"] = messages[starts[-1] :] if starts else messages
    tale.put(context.refer(tale.state, request, purpose="side" if how == "side" else "main"))


def _answer(draw: Draw, tale: Tale) -> None:
    blocks = draw(st.lists(BLOCKS, max_size=4))
    error = draw(st.sampled_from([None, None, None, "Overloaded"]))
    stop = draw(st.sampled_from([None, "end_turn", "pause_turn"]))
    cut = draw(st.sampled_from([[], ["0"]]))
    parent = tale.state.open_request or draw(st.integers(1, 30))
    usage = {"input_tokens": 3, "output_tokens": draw(st.sampled_from([1, None, "x"]))}
    fields = {"error": error, "stop": stop, "cut": cut, "usage": usage}
    tale.response(*blocks, parent=parent, **fields)


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
    ref = {"call_id": draw(st.sampled_from(IDS)), "announced_by": draw(st.none() | st.just(seq))}
    kind, odd = draw(
        st.sampled_from(
            [
                ("compact", {"summary": draw(TEXTS), "keep_from": seq}),
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
