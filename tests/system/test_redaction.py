"""What `redact` takes out is in no stored byte; what was cut is never run by a stranger."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flightlog import Decide, Log, RunTools, Session, Suspended, connect, context
from flightlog.running import inbox
from flightlog.wire import payload as tables
from flightlog_recorder.embedded import Server, Servers
from tests.scripted import TENANT, Model, asks, payloads, says, stored, until

SECRET = "sk-live-0123456789abcdef"


def redact(text: str) -> str:
    return re.sub(r"sk-live-\w+", "[key]", text)


def leaks(folder: Path) -> list[str]:
    """The files that hold the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if SECRET.encode() in path.read_bytes()]


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT, redact=redact) as log:
        yield log


async def turn(session: Session, *script: dict[str, Any]) -> None:
    model = Model(*script)
    for _ in script:
        request = {"model": "m", "system": SECRET, "messages": session.state.messages()}
        await session.model_call(request, call=model)


async def test_no_secret_is_in_any_stored_byte(log: Log, nats_server: Server) -> None:
    async with log.session(key="k") as s:
        await s.user_message(f"use {SECRET}")
        await s.user_message([{"type": "text", "text": SECRET}])
        await turn(s, asks(("c", "fetch", {"key": SECRET, "deep": [{"x": SECRET}]})))
        step = s.state.next
        assert isinstance(step, RunTools)
        await s.tool_call(step.calls[0], run=lambda key, deep: [key, deep])
        await s.tool_call("t", {"k": SECRET}, call_id="u", run=_raise)
        await s.value("v", lambda: SECRET)
        await s.checkpoint({"k": SECRET})
        await s.hook("gate", SECRET, run=lambda event: {"allow": event}, reason=SECRET)
        await s.append("note", {"k": (SECRET,)})
        await s.compact(SECRET, keep_from=s.state.seq)
        await s.progress(SECRET)
        await log.say(s.id, SECRET)
        await log.send(s.id, inbox.Suspend(by=SECRET, reason=SECRET))
        await until(lambda: s.state.status == "suspended")
    async with log.session(key="k") as s:
        await s.end("failed", result=SECRET, error=f"died of {SECRET}")
    events = await stored(log, s.id)
    assert len(events) == 19
    for event in events:
        assert SECRET.encode() not in event.body, event.type
    nats_server.kill()
    assert not leaks(nats_server.home)


async def test_a_live_tool_gets_what_the_model_said_and_its_result_comes_back_redacted(
    log: Log,
) -> None:
    got: list[str] = []

    def fetch(key: str) -> str:
        got.append(key)
        return f"fetched with {key}"

    async with log.session() as s:
        await s.user_message("go")
        await turn(s, asks(("c", "fetch", {"key": SECRET})))
        step = s.state.next
        assert isinstance(step, RunTools)
        result = await s.tool_call(step.calls[0], run=fetch)
        assert result.output == "fetched with [key]"
        (call,) = await payloads(log, s.id, "tool_call")
        assert call["arguments"] == {"key": "[key]"}
        assert call["cut"] is True
        await s.tool_call("fetch", {"key": SECRET}, call_id="own", run=fetch)
        await s.tool_call("fetch", {"key": "harmless"}, call_id="plain", run=fetch)
    assert got == [SECRET, SECRET, "harmless"]
    assert not s._journal.originals


async def test_a_cut_call_that_was_not_started_is_asked_about_and_never_run(log: Log) -> None:
    async with log.session(key="k") as s:
        await s.user_message("go")
        await turn(s, asks(("c", "fetch", {"key": SECRET}), ("d", "fetch", {"key": "harmless"})))
    async with log.session(key="k") as s:
        step = s.state.next
        assert isinstance(step, RunTools)
        assert [call.call_id for call in step.calls] == ["d"]
        await s.tool_call(step.calls[0], run=lambda key: key)
        step = s.state.next
        assert isinstance(step, Decide)
        (waiting,) = step.calls
        await log.send(
            s.id, inbox.decision("c", announced_by=waiting.announced_by, ruling="rerun", by="ann")
        )
        await until(lambda: s.state.counts.get("decision_made") == 1)
        (made,) = await payloads(log, s.id, "decision_made")
        assert made["ruling"] == "refused"
        assert "redacted" in made["reason"]
        assert isinstance(s.state.next, Decide)


async def test_a_cut_call_in_flight_is_asked_about_whatever_its_policy(log: Log) -> None:
    started = asyncio.Event()

    async def endless(key: str) -> None:
        assert key == SECRET
        started.set()
        await asyncio.Event().wait()

    async with log.session(key="k") as s:
        await s.user_message("go")
        await turn(s, asks(("c", "fetch", {"key": SECRET})))
        step = s.state.next
        assert isinstance(step, RunTools)
        call = s.tool_call(step.calls[0], run=endless, on_resume="rerun")
        running = asyncio.create_task(call)
        await started.wait()
    with pytest.raises(Suspended):
        await running
    async with log.session(key="k") as s:
        assert isinstance(s.state.next, Decide)


async def test_a_redacted_request_is_stored_by_reference_and_proved_all_the_same(
    log: Log,
) -> None:
    async with log.session() as s:
        await s.user_message(f"use {SECRET}")
        for n in range(5):
            await turn(s, says(f"{n}: {SECRET}"))
            await s.user_message(f"again {n} with {SECRET}")
        requests = [event for event in await stored(log, s.id) if event.type == "model_request"]
        for event in requests:
            asked = tables.decode("model_request", event.raw)
            assert isinstance(asked, tables.ModelRequest)
            assert asked.context is not None
            assert not asked.rest
            state = await log.state(s.id, at=asked.context.upto)
            whole = context.rebuild(state, asked)
            assert whole["system"] == "[key]"
            assert SECRET not in str(whole)


def _raise(k: str) -> None:
    raise ValueError(f"cannot use {k}")
