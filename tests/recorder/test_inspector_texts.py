"""All of a text, a value, or what was attached: to be had from an event, a state and a request."""

import io
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from flightlog import Log
from flightlog_recorder.inspector import whole
from tests.recorder.inspected import Answered, Client, inspected
from tests.scripted import Model, says

LONG = "many words\n" * 40_000  # more than stays in an event


@pytest.fixture
async def client(log: Log) -> AsyncIterator[Client]:
    async with inspected(log) as client:
        yield client


async def text(client: Client, path: str, *steps: str | int) -> Answered:
    """What the page gets for a way into a value."""
    return await client.get(f"{path}/text?path={quote(json.dumps(steps))}")


async def test_a_value_in_a_blob_is_one_change_and_both_states_have_all_of_it(
    log: Log, client: Client
) -> None:
    async with log.session(key="k") as session:
        for word in ("old", "new"):
            await session.checkpoint({"rows": [1, 2], "report": f"{word} {LONG}"}, label="mark")
    at = f"/api/sessions/{session.id}"
    found = (await client.get(f"{at}/changes/3")).json["changes"]
    [change] = [each for each in found if each["path"].startswith("checkpoint.data")]
    assert change["path"] == "checkpoint.data.report"
    assert [change[side]["lines"][0]["kind"] for side in ("old", "new")] == ["blob", "blob"]
    for seq, word in ((2, "old"), (3, "new")):
        all_of_it = await text(client, f"{at}/states/{seq}", *change["at"])
        assert all_of_it.headers["content-type"].startswith("text/plain")
        assert all_of_it.body.decode() == f"{word} {LONG}"
    data = await text(client, f"{at}/states/3", "checkpoint", "data")
    assert json.loads(data.body) == {"rows": [1, 2], "report": f"new {LONG}"}
    assert (await text(client, f"{at}/states/3", "checkpoint", "nothing")).status == 404


async def test_the_contexts_messages_are_told_in_lines_with_the_way_to_each(
    log: Log, client: Client
) -> None:
    async with log.session(key="k") as session:
        for n in range(40):
            await session.user_message(f"message {n}" if n else LONG)
    at = f"/api/sessions/{session.id}/states/41"
    lines = (await client.get(at)).json["context"]
    assert lines[0]["path"] == ["entries", 39]
    assert (lines[-1]["path"], lines[-1]["text"]) == (None, "and 10 before these")
    part = (await client.get(f"{at}/part?path={quote(json.dumps(['entries', 39]))}")).json
    assert {line["name"]: line["text"] for line in part["lines"]}["content"] == "message 39"
    assert (await text(client, at, "entries", 0, "content")).body.decode() == LONG


async def test_all_of_a_request_is_to_be_had(log: Log, client: Client) -> None:
    async with log.session(key="k") as session:
        await session.user_message(LONG)
        request: dict[str, Any] = {"model": "m", "messages": session.state.messages()}
        await session.model_call(request, call=Model(says("read")))
    at = f"/api/sessions/{session.id}/requests/3"
    assert (await text(client, at, "messages", 0, "content")).body.decode() == LONG
    assert json.loads((await text(client, at)).body) == request


async def test_what_was_attached_is_read_as_text_unless_it_is_too_much(
    log: Log, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with log.session(key="k") as session:
        blob = await session.attach(io.BytesIO(b"\xffa,b\n" * 200_000))
        await session.checkpoint({"file": blob})
    at = f"/api/sessions/{session.id}/events/2"
    assert (await text(client, at, "data", "file")).body.decode() == "\\xffa,b\n" * 200_000
    monkeypatch.setattr(whole, "MOST", 1_000_000 - 1)
    refused = await text(client, at, "data", "file")
    assert refused.status == 409
    assert "1 MB, more than a page can show" in refused.error
    assert LONG[:10] not in refused.error
