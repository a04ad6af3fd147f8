"""A log whose texts lie in blobs tells what the same log tells that holds them itself."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec import Raw
from msgspec.structs import replace

from flightlog import BlobMissing, context, state
from flightlog.blobs import held
from flightlog.blobs.held import Held
from flightlog.blobs.spill import Limits, spill
from flightlog.event import Event
from flightlog.messages import providers
from flightlog.state import SessionState
from flightlog.wire import carry, payload
from flightlog.wire.chunk import Blob
from flightlog.writing import holding
from tests.sdk.tale import Tale, begun, chat, function_call, text, tool_use
from tests.sdk.wild import tales

TINY = Limits(threshold=16, least=4)  # nearly every text of a random log becomes a blob
PROVIDERS = ("anthropic", "openai-chat")


class Twin:
    """The same events twice: as they are, and with what spills in blobs."""

    def __init__(self, session: str, limits: Limits = TINY) -> None:
        self.plain, self.spilled = Tale(session), Tale(session)
        self.limits = limits
        self.contents: dict[str, bytes] = {}

    def add(self, event: Event) -> None:
        self.plain.add(event.type, event.raw, parent=event.parent_seq)
        raw, spilled = spill(event.type, event.raw, self.limits)
        self.contents |= {each.blob.digest: each.content for each in spilled}
        self.spilled.add(event.type, raw, parent=event.parent_seq)
        assert bytes(self.whole(raw)) == bytes(event.raw) or not spilled

    def whole(self, raw: Raw) -> Raw:
        return held.whole(raw, lambda blob: self.contents[blob.digest])

    @property
    def state(self) -> SessionState:
        return replace(self.spilled.state, held=Held(self.contents))


def same(twin: Twin) -> None:
    for provider in PROVIDERS:
        assert twin.state.lines(providers.get(provider)) == twin.plain.state.lines(
            providers.get(provider)
        )
        assert twin.state.messages(provider) == twin.plain.state.messages(provider)
    assert twin.state.next == twin.plain.state.next
    assert twin.state.saved == twin.plain.state.saved


@settings(max_examples=300, deadline=None)
@given(tales(careless=True))
def test_every_cut_gives_the_same_messages_and_steps_as_the_log_that_holds_its_texts(
    tale: Tale,
) -> None:
    twin = Twin(tale.session)
    for event in tale.events:
        twin.add(event)
        same(twin)
        needed = {blob.digest for blob in holding.needed(twin.spilled.state)}
        few = replace(twin.state, held=Held(twin.contents).kept(needed))
        assert [few.messages(each) for each in PROVIDERS] == [
            twin.plain.state.messages(each) for each in PROVIDERS
        ]


@settings(max_examples=300, deadline=None)
@given(tales(careless=True))
def test_every_request_comes_back_and_is_stored_the_same(tale: Tale) -> None:
    twin = Twin(tale.session)
    plain, spilled = [twin.plain.state], [twin.state]
    for event in tale.events:
        twin.add(event)
        plain.append(twin.plain.state)
        spilled.append(twin.state)
        asked = payload.decode(event.type, event.raw)
        if not isinstance(asked, payload.ModelRequest) or asked.context is None:
            continue
        upto = asked.context.upto
        stored = payload.decode(event.type, twin.whole(twin.spilled.events[-1].raw))
        assert isinstance(stored, payload.ModelRequest)
        request = context.rebuild(plain[upto], asked)
        assert context.rebuild(spilled[upto], stored) == request
        options: dict[str, Any] = {"purpose": asked.purpose, "provider": asked.provider}
        assert context.refer(spilled[upto], request, **options) == context.refer(
            plain[upto], request, **options
        )


@settings(max_examples=100, deadline=None)
@given(tales(careless=True))
def test_a_snapshot_holds_references_alone_and_folds_on_to_the_same_bytes(tale: Tale) -> None:
    twin, found = Twin(tale.session), state.initial()
    for event in tale.events:
        twin.add(event)
    for event in twin.spilled.events:
        found = state.apply(replace(found, held=Held(twin.contents)), event)
        stored = state.encode(found)
        assert state.encode(state.decode(stored)) == stored
        found = state.decode(stored)
    assert state.encode(found) == state.encode(twin.spilled.state)


ODD = ['say "hi"\n\\n', "\x00\x1f", "cut \ud83d", "\ufdd0blob:t1:1::\ufdd1", "naïve ☃ 💡", "</" * 9]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("words", ODD)
def test_texts_of_every_kind_come_back_wherever_they_stand(words: str, provider: str) -> None:
    tale = begun()
    picture = {"url": f"data:image/png;base64,{'QUJD' * 9}"}
    tale.user([text(words), {"type": "image_url", "image_url": picture}])
    tale.user({"a": {"b": words}})
    tale.request({"model": "m", "messages": tale.state.messages(provider)}, provider=provider)
    if provider == "anthropic":
        tale.response(text(words), *(tool_use(each, "t", a=words) for each in "abcd"))
    else:
        calls = [function_call(each, "t", json.dumps({"a": words})) for each in "abcd"]
        tale.answered(chat(words, *calls))
    tale.result("a", words)
    tale.result("b", {"deep": [words, {"er": words}], "json": '{"x": "y"}'})
    tale.result("c", words, outcome="error")
    tale.result("d", [text(words)])
    other = PROVIDERS[provider == "anthropic"]
    tale.request({"model": "m", "messages": tale.state.messages(other)}, provider=other)
    twin = Twin(tale.session)
    for event in tale.events:
        twin.add(event)
        same(twin)


def test_a_value_of_many_small_parts_leaves_whole() -> None:
    tale = begun()
    tale.turn(tool_use("a"))
    tale.result("a", {"rows": [[n, n] for n in range(100)]})
    tale.add("value_recorded", {"name": "v", "value": list(range(100))})
    tale.add("checkpoint", {"label": "c", "data": {"n": list(range(100))}})
    twin = Twin(tale.session)
    for event in tale.events:
        twin.add(event)
        same(twin)
    assert all(len(event.raw) < 500 for event in twin.spilled.events)


@pytest.mark.parametrize(
    "value", ["long " * 9, ["long " * 9, 1], list(range(99)), "cut \ud83d" * 9]
)
def test_an_authors_event_that_is_no_object_leaves_too(value: object) -> None:
    packed = carry.pack(value)
    raw, spilled = spill("note", packed, Limits(threshold=32, least=16))
    contents = {each.blob.digest: each.content for each in spilled}
    assert contents
    assert bytes(held.whole(raw, lambda blob: contents[blob.digest])) == bytes(packed)


def test_a_stream_of_events_that_holds_a_data_url_is_a_text_like_any_other() -> None:
    said = {"content": f'data: {"x" * 300}\n\ndata: {{"url":"data:image/png;base64,QUJD"}}'}
    assert spill("user_message", carry.pack(said), TINY)[1]


def test_a_content_that_is_not_there_is_named() -> None:
    twin = Twin("sess_tale")
    for event in begun().events:
        twin.add(event)
    with pytest.raises(BlobMissing, match="sess_tale"):
        twin.spilled.state.messages()


def test_texts_that_look_like_what_stands_in_for_a_blob_are_none() -> None:
    blob = Blob("0" * 64, 9, "text")
    forged = f"\ufdd0blob:t1:9:{'0' * 64}:\ufdd1"
    assert held.references(carry.pack({"marked": blob})) == [blob]
    for value in (forged, [forged], {forged: 1}, {"$flightlog": "blob", "value": 1}):
        assert held.references(carry.pack(value)) == []
    raw = Raw(b'["' + forged.encode() + b'","\\uFDd0blob:t1:9:' + b"0" * 64 + b':\\ufdd1"]')
    assert held.references(carry.pack({"raw": raw})) == []
    assert carry.shown(carry.pack(forged)) == forged.replace("\ufdd0", "\ufffd")
    assert carry.unpack(carry.pack(forged)) == forged


def test_a_long_prompt_and_its_tools_are_stored_once_and_come_back() -> None:
    twin = Twin("sess_tale")
    for event in begun().events:
        twin.add(event)
    tools = [{"name": "t", "description": 'it says "hi"\n', "schema": {"n": list(range(30))}}]
    request = {"model": "m", "system": "be kind", "tools": tools, "temperature": 0}
    for turn in range(3):
        request["messages"] = twin.plain.state.messages()
        before, asked = twin.state, context.refer(twin.state, request)
        assert list(asked.params) == (["system", "tools", "temperature"] if not turn else [])
        twin.add(asked_event(twin.plain, asked))
        stored = payload.decode("model_request", twin.whole(twin.spilled.events[-1].raw))
        assert isinstance(stored, payload.ModelRequest)
        assert context.rebuild(before, stored) == request
        answer = {"message": {"role": "assistant", "content": [text('a "b"\n')]}}
        twin.add(next_event(twin.plain, "model_response", carry.pack(answer)))
    again = context.refer(twin.state, {**request, "system": "be kinder", "tools": tools[:0]})
    assert list(again.params) == ["system", "tools"]


def test_arguments_that_were_sent_as_text_are_read_as_the_value_that_they_are() -> None:
    words = 'say "hi"\n\\n'
    tale = begun()
    tale.turn(text("so"), tool_use("a", "t", a=words))
    tale.result("a", words)
    chats = tale.state.messages("openai-chat")
    chats.insert(1, {"role": "user", "content": "remember"})
    tale.request({"model": "m", "messages": chats}, provider="openai-chat")
    tale.answered(chat("so"))
    chats = tale.state.messages("openai-chat")
    tale.request({"model": "m", "messages": [*chats[:3], *chats[3:4], *chats[1:2]]})
    twin = Twin(tale.session)
    for event in tale.events:
        twin.add(event)
        same(twin)


def asked_event(tale: Tale, asked: payload.ModelRequest) -> Event:
    return next_event(tale, "model_request", payload.encode(asked))


def next_event(tale: Tale, kind: str, raw: Raw) -> Event:
    other = Tale(tale.session)
    other.events, other.state = [*tale.events], tale.state
    return other.add(kind, raw)
