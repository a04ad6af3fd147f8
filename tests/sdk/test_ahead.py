"""What a request has no room for goes ahead of it, and the log tells the same as if it had room."""

from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import UNSET

from flightlog import connect, context, state
from flightlog.wire import payload
from tests.scripted import TENANT, Model, says
from tests.sdk.tale import Tale, begun
from tests.sdk.wild import tales

HISTORY = [
    {"role": ("user", "assistant")[n % 2], "content": f"{n} {'words ' * 20}"} for n in range(9_999)
]


def ahead(tale: Tale, asked: payload.ModelRequest, request: dict[str, Any]) -> None:
    """The request, as if it had room for nothing."""
    options: dict[str, Any] = {"purpose": asked.purpose, "provider": asked.provider}
    for part in context.ahead(asked, most=1):
        tale.put(part)
    again = context.refer(tale.state, request, **options)
    assert again.context is not None
    assert context.rebuild(tale.state, again) == request
    assert state.encode(state.decode(state.encode(tale.state))) == state.encode(tale.state)
    tale.put(again)


@settings(max_examples=200, deadline=None)
@given(tales(careless=True))
def test_the_context_after_a_request_is_the_same(tale: Tale) -> None:
    at = Tale(tale.session)
    for event in tale.events:
        asked, before = payload.decode(event.type, event.raw), at.state
        at.add(event.type, event.raw, parent=event.parent_seq)
        if not isinstance(asked, payload.ModelRequest) or not asked.rest:
            continue
        other = Tale(tale.session)
        other.events, other.state = at.events[:-1], before
        ahead(other, asked, context.rebuild(before, asked))
        shown = asked.provider  # another's view may show more of what a copied span keeps
        assert other.state.messages(shown) == at.state.messages(shown)


async def test_a_first_call_with_a_long_history_of_small_messages_is_stored_and_proved(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            request = {"model": "m", "messages": HISTORY}
            await s.model_call(request, call=Model(says("hello")))
            assert s.state.messages()[:-1] == HISTORY
            await s.model_call({"messages": s.state.messages()}, call=Model(says("again")))
        async with log.session(key="k") as s:
            assert s.state.messages()[:-2] == HISTORY
        stored = [event async for event in log.read(s.id)]
        assert sum(event.type == "model_messages" for event in stored) == 6
        assert max(len(event.body) for event in stored) < 300_000
        first, second = [event for event in stored if event.type == "model_request"]
        asked = payload.decode(first.type, first.raw)
        assert isinstance(asked, payload.ModelRequest)
        assert asked.context is not None
        assert context.rebuild(await log.state(s.id, at=asked.context.upto), asked) == request
        assert len(second.body) < 1_000


async def test_what_went_ahead_of_a_request_that_never_came_is_not_sent(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="k") as s:
            await s.user_message("hi")
            await s.append("model_messages", {"messages": HISTORY[:2]})
            assert len(s.state.messages()) == 1
            assert s.state.ahead is not UNSET
        async with log.session(key="k") as s:
            assert s.state.ahead is UNSET
            request = {"messages": s.state.messages()}
            await s.model_call(request, call=Model(says("hello")))
            assert [each["role"] for each in s.state.messages()] == ["user", "assistant"]


@pytest.mark.parametrize("provider", ["anthropic", "openai-chat"])
def test_results_that_went_ahead_in_several_events_stay_together(provider: str) -> None:
    calls = [{"type": "tool_use", "id": each, "name": "t", "input": {}} for each in "ab"]
    results = [{"type": "tool_result", "tool_use_id": each, "content": each} for each in "ab"]
    told = begun()
    told.request({"messages": [{"role": "user", "content": "go"}]})
    told.response(*calls)
    sent: list[Any] = [
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [{**each, "id": f"{each['id']}2"} for each in calls]},
        {
            "role": "user",
            "content": [{**each, "tool_use_id": f"{each['tool_use_id']}2"} for each in results],
        },
    ]
    plain = begun()
    plain.request({"messages": sent})
    request = {"messages": plain.state.messages(provider)}
    ahead(told, context.refer(told.state, request, provider=provider), request)
    assert told.state.messages(provider) == plain.state.messages(provider)
