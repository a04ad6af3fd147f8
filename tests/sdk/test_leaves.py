"""What leaves a payload, and what then stands in its place."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from flightlog import Blob, connect
from flightlog.blobs import held
from flightlog.blobs.spill import SPILLS, spill
from flightlog.messages import openai_chat
from flightlog.wire import carry, stand_in
from tests.scripted import TENANT
from tests.sdk.tale import chat, function_call, text

ROWS = {"rows": list(range(300_000))}  # 2 MB, and no text in it


def left(type: str, payload: Any) -> tuple[Any, dict[str, bytes]]:
    """What stays in the event; that all of it comes back is seen on the way."""
    packed = payload if isinstance(payload, Raw) else carry.pack(payload)
    raw, spilled = spill(type, packed, SPILLS)
    contents = {each.blob.digest: each.content for each in spilled}
    assert bytes(held.whole(raw, lambda blob: contents[blob.digest])) == bytes(packed)
    return carry.unpack(raw), contents


def arguments_left(written: str) -> Any:
    found, contents = left(
        "model_response", {"message": chat(None, function_call("a", "t", written))}
    )
    (call,) = openai_chat.reply(carry.pack(found["message"])).calls
    whole = held.whole(carry.pack(call.input), lambda blob: contents[blob.digest])
    return carry.unpack(call.input), carry.unpack(whole)


def test_arguments_that_are_json_are_a_value_that_is_read_when_it_is_asked_for() -> None:
    reference, value = arguments_left(json.dumps(ROWS, indent=1))
    assert (reference.kind, reference.head) == ("json", "")
    assert value == ROWS


def test_arguments_that_were_cut_are_the_text_that_they_are() -> None:
    written = json.dumps(ROWS)[:-9]
    reference, value = arguments_left(written)
    assert (reference.kind, reference.head) == ("text", "{")
    assert value == written


def test_two_thousand_blocks_leave_as_one_row_behind_the_first() -> None:
    blocks = [text("word " * 400) for _ in range(2_000)]
    for kind, field in (("tool_result", "output"), ("user_message", "content")):
        found, contents = left(kind, {"call_id": "c", field: blocks})
        assert len(contents) == 1
        first, row = found[field]
        assert first == blocks[0]
        assert row["text"].kind == "items"


FORGED = f"no \ufdd0blob:t1:9:{'0' * 64}:\ufdd1 of ours"


@pytest.mark.parametrize("words", ["why " * 500_000, FORGED, " " * 600_000], ids="lfb")
@pytest.mark.parametrize(
    ("type", "field"),
    [
        ("session_ended", "error"),
        ("session_suspended", "reason"),
        ("hook_decision", "reason"),
        ("decision_requested", "question"),
        ("decision_made", "reason"),
    ],
)
def test_a_text_of_the_table_leaves_its_beginning(type: str, field: str, words: str) -> None:
    """And one that looks like a reference is none."""
    written = msgspec.json.encode({field: words})  # as the table's texts are: not by `carry`
    found, contents = left(type, Raw(written))
    assert len(contents) == 1
    shown = stand_in.readable(found[field])
    assert "sha256" in shown
    assert len(shown) < 400
    assert words.startswith(shown.partition("…")[0])


async def test_a_reason_of_two_mib_is_stored_and_comes_back(nats_url: str) -> None:
    reason = "the disk is full, " * 120_000
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as s:
            await s.suspend(reason)
        (event,) = [each async for each in log.read(s.id) if each.type == "session_suspended"]
        assert len(event.body) < 1_000
        assert (await log.payload(event))["reason"] == reason
        state = await log.state(s.id)
        assert str(state.reason).startswith("the disk is full")


def test_bytes_in_a_block_leave_within_their_mark() -> None:
    block = {"type": "x", "raw": bytes(1_000_000), "odd": {1: "x" * 300_000}}
    found, contents = left("user_message", {"content": [block]})
    assert len(contents) == 2
    assert isinstance(found["content"][0]["odd"][1], Blob)
