"""What the page reads and does, in real servers: sessions, timelines, states, decisions, forks."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

import flightlog
from flightlog import Log
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog_recorder.cli import target
from flightlog_recorder.embedded import Server
from flightlog_recorder.purge import purge
from flightlog_recorder.purge.purge import Reason
from tests.handmade import SESSION, chain, follow, takeover, tombstone
from tests.recorder.batches import write_batches
from tests.recorder.inspected import Client, inspected
from tests.recorder.recorded import project, talk, write
from tests.scripted import TENANT, Model, asks, payloads, stored, types

PAGES = ("", "/events", "/events/1", "/states/1", "/changes/1", "/export", "/live", "/marks")
HOSTILE = "\x1b[31m<script>alert(1)</script>\x00\u202e "


@pytest.fixture
async def client(log: Log) -> AsyncIterator[Client]:
    async with inspected(log) as client:
        yield client


async def long(log: Log, length: int) -> str:
    """A session of plain events, written by hand."""
    session = names.mint()
    await write_batches(log, session, chain(length, session=session))
    return session


async def waiting(log: Log) -> str:
    """A session one of whose calls waits for a person: its process died with it."""
    model = Model(asks(("t1", "deploy", {"to": "production"})))
    async with log.session(key="deploy") as session:
        await session.user_message("deploy it")
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        [call] = session.state.next.calls  # type: ignore[union-attr]
        started = asyncio.Event()

        async def deploy(to: str) -> str:
            started.set()
            await asyncio.sleep(60)
            return to

        running = asyncio.create_task(session.tool_call(call, run=deploy))
        await started.wait()
        async with log.session(id=session.id):
            pass
        with pytest.raises((flightlog.Fenced, asyncio.CancelledError)):
            await running
        return session.id


async def test_the_sessions_are_listed_filtered_and_paged(log: Log, client: Client) -> None:
    ids = [
        await talk(log, key=f"k{n}", labels={"job": "odd" if n % 2 else "even"}) for n in range(5)
    ]
    for each in ids:
        await project(log, each)
    first = (await client.get("/api/sessions?limit=3")).json
    assert [row["session"] for row in first["sessions"]] == ids[:1:-1]
    rest = (await client.get(f"/api/sessions?limit=3&after={first['after']}")).json
    assert [row["session"] for row in rest["sessions"]] == ids[1::-1]
    assert rest["after"] is None
    odd = (await client.get("/api/sessions?label.job=odd&status=completed")).json
    assert [row["session"] for row in odd["sessions"]] == [ids[3], ids[1]]
    assert [r["key"] for r in (await client.get("/api/sessions?key=k4")).json["sessions"]] == ["k4"]
    assert (await client.get("/api/sessions?status=gone")).status == 400
    assert (await client.get("/api/sessions?after=x")).status == 400


async def test_a_session_is_a_timeline_with_the_event_and_the_state_at_each_place(
    log: Log, client: Client
) -> None:
    source = await talk(log, key="k")
    await project(log, source)
    found = (await client.get(f"/api/sessions/{source}")).json
    assert (found["last"], found["row"]["key"]) == (9, "k")
    rows = (await client.get(f"/api/sessions/{source}/events?first=1&last=50")).json["rows"]
    assert [row["seq"] for row in rows] == list(range(1, 10))
    assert [row["type"] for row in rows] == [event.type for event in await stored(log, source)]
    call = next(row for row in rows if row["type"] == "tool_call")
    event = (await client.get(f"/api/sessions/{source}/events/{call['seq']}")).json
    shown = {part["name"]: part["text"] for part in event["payload"]["lines"]}
    assert (shown["name"], shown["x"]) == ("add", "1")
    state = (await client.get(f"/api/sessions/{source}/states/{call['seq']}")).json
    assert state["headline"] == "waiting for 1 tool (add)"
    changes = (await client.get(f"/api/sessions/{source}/changes/{call['seq']}")).json["changes"]
    changed = {change["path"]: change for change in changes}
    assert changed['calls["t1 of 4"].phase']["new"]["lines"][0]["text"] == "running"


async def test_a_window_deep_in_a_long_session_is_read_without_what_is_before_it(
    log: Log, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await long(log, 6_000)
    other = await long(log, 3_000)
    page, read = log.bus.page, list[int]()

    async def counted(*asked: Any, **narrowed: Any) -> Any:
        found = await page(*asked, **narrowed)
        read.append(len(found.messages))
        return found

    monkeypatch.setattr(log.bus, "page", counted)
    assert (await client.get(f"/api/sessions/{session}")).json["last"] == 6_000
    rows = (await client.get(f"/api/sessions/{session}/events?first=4001&last=4100")).json["rows"]
    assert [row["seq"] for row in rows] == list(range(4_001, 4_101))
    assert (await client.get(f"/api/sessions/{session}/events/5999")).json["event"]["seq"] == 5_999
    assert sum(read) < 4_500  # pages of up to 1,000, and one ahead of each
    assert (await client.get(f"/api/sessions/{other}")).json["last"] == 3_000


async def test_a_fenced_writers_events_are_in_no_window(log: Log, client: Client) -> None:
    session = SESSION
    events = [takeover(None, 1)]
    for _ in range(400):
        events.append(follow(events[-1], payload={"by": "the first"}))
    branch = [takeover(events[200], 2)]
    for _ in range(300):
        branch.append(follow(branch[-1], payload={"by": "the second"}))
    await write(log, session, [*events, *branch])
    assert (await client.get(f"/api/sessions/{session}")).json["last"] == 502
    for first in (150, 202, 390, 480):
        path = f"/api/sessions/{session}/events?first={first}&last={first + 20}"
        rows = (await client.get(path)).json["rows"]
        assert [row["seq"] for row in rows] == list(range(first, first + 21))
        assert all("the first" not in row["text"] for row in rows if row["seq"] > 201)


async def test_a_damaged_session_is_shown_up_to_the_damage_which_is_named(
    log: Log, client: Client
) -> None:
    session = names.mint()
    events = chain(20, session=session)
    await write(log, session, events[:12] + events[13:])
    found = (await client.get(f"/api/sessions/{session}/events?first=1&last=50")).json
    assert [row["seq"] for row in found["rows"]] == list(range(1, 13))
    assert "damaged after seq 12" in found["damage"]


async def test_hostile_texts_travel_unchanged_and_long_ones_only_on_demand(
    log: Log, client: Client
) -> None:
    line = "x" * 1_000_000
    async with log.session(key=HOSTILE) as session:
        await session.user_message({HOSTILE: [HOSTILE, line]})
    answered = await client.get(f"/api/sessions/{session.id}/events/2")
    assert len(answered.body) < 20_000
    parts = answered.json["payload"]["lines"]
    assert HOSTILE in [part["text"] for part in parts]
    cut = next(part for part in parts if part.get("size", 0) >= len(line))
    path = json.dumps(cut["path"])
    whole = await client.get(f"/api/sessions/{session.id}/events/2/text?path={quote(path)}")
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.body.decode() == line
    assert (await client.get(f"/api/sessions/{session.id}/events/2/text?path=[9]")).status == 404
    rows = (await client.get(f"/api/sessions/{session.id}/events")).json["rows"]
    assert len(rows[1]["text"]) < 200


async def test_what_lies_in_a_blob_is_loaded_on_demand(log: Log, client: Client) -> None:
    text = "many words " * 100_000
    async with log.session(key="k") as session:
        await session.user_message(text)
    assert len((await client.get(f"/api/sessions/{session.id}/events/2")).body) < 20_000
    whole = await client.get(f"/api/sessions/{session.id}/events/2/text?path=%5B%22content%22%5D")
    assert whole.body.decode() == text
    async with log.session(key="k") as session:
        await session.user_message("straw " * 4_000_000 + "needle")
    find = f"/api/sessions/{session.id}/find?what=words&from=1"
    assert (await client.get(f"{find}&words=many+words")).json == {"seq": 2, "why": None}
    missed = (await client.get(f"{find}&words=needle")).json
    assert (missed["seq"], "too large" in missed["why"]) == (None, True)


async def test_places_are_found_by_what_is_there(log: Log, client: Client) -> None:
    source = await talk(log)
    find = f"/api/sessions/{source}/find"
    assert (await client.get(f"{find}?what=tool&from=1")).json["seq"] == 5
    assert (await client.get(f"{find}?what=tool&from=9&back=1")).json["seq"] == 5
    assert (await client.get(f"{find}?what=error&from=1")).json["seq"] is None
    assert (await client.get(f"{find}?what=words&words=it+is+2&from=1")).json["seq"] == 8
    assert (await client.get(f"{find}?what=words&words=%28a%2B%29%2B%24&from=1")).json[
        "seq"
    ] is None
    for bad in ("what=words&words=", "what=nothing", "what=tool&from=-1"):
        assert (await client.get(f"{find}?{bad}")).status == 400


async def test_the_request_a_model_was_sent_is_proved(log: Log, client: Client) -> None:
    source = await talk(log)
    found = (await client.get(f"/api/sessions/{source}/requests/3")).json
    assert found["exact"]
    assert len(found["digest"]) == 64
    assert (await client.get(f"/api/sessions/{source}/requests/2")).status == 409


async def test_a_session_grows_as_it_happens(log: Log, client: Client) -> None:
    async with (
        log.session(key="k") as session,
        client.stream(f"/api/sessions/{session.id}/live") as news,
    ):
        assert (await anext(news))["last"] == 1
        await session.user_message("one")
        assert (await anext(news))["last"] == 2
        await session.user_message("two")
        assert (await anext(news))["last"] == 3


async def test_progress_is_told_and_read_by_nobody_later(log: Log, client: Client) -> None:
    async with (
        log.session(key="k") as session,
        client.stream(f"/api/sessions/{session.id}/live") as news,
    ):
        assert (await anext(news))["last"] == 1

        async def told() -> str:
            while "progress" not in (heard := await anext(news)):
                pass
            return str(heard["progress"])

        telling = asyncio.create_task(told())
        while not telling.done():  # who comes late hears nothing of what was said before
            await session.progress({"percent": 40})
            await asyncio.wait({telling}, timeout=0.05)
        assert await telling == '{"percent": 40}'
    assert await types(log, session.id) == ["session_started", "session_suspended"]


async def test_a_decision_is_answered_from_the_page_and_taken_by_the_writer(
    log: Log, client: Client
) -> None:
    source = await waiting(log)
    last = (await client.get(f"/api/sessions/{source}")).json["last"]
    [call] = (await client.get(f"/api/sessions/{source}/states/{last}")).json["undecided"]
    about = {"call_id": call["call_id"], "announced_by": call["announced_by"]}
    ruling = {**about, "ruling": "result", "output": {"done": True}, "reason": "I looked"}
    path = f"/api/sessions/{source}/decisions"
    for bad in (
        about,
        {**ruling, "reason": " "},
        {**ruling, "ruling": "maybe"},
        b"{",
        b"[" * 9_999,
    ):
        assert (await client.post(path, bad)).status == 400
    assert (await client.post(path, {**ruling, "call_id": "t2"})).status == 409
    assert (await client.post(path, {**ruling, "output": "x" * (1 << 20)})).status == 413
    assert (await client.post(path, ruling)).status == 202
    async with log.session(id=source) as session:
        assert session.state.call(call["announced_by"], "t1").phase == "done"  # type: ignore[union-attr]
    [made] = await payloads(log, source, "decision_made")
    assert (made["ruling"], made["reason"]) == ("result", "I looked")
    assert (await client.post(path, ruling)).status == 409


async def test_a_session_is_forked_and_the_family_is_told(log: Log, client: Client) -> None:
    source = await talk(log, key="source")
    effects = (await client.get(f"/api/sessions/{source}/effects?after=4")).json
    assert effects["count"] == 1
    wanted = {"at": 4, "key": "what-if", "labels": {"try": "2"}}
    made = await client.post(f"/api/sessions/{source}/forks", wanted)
    assert made.status == 201
    fork = made.json["session"]
    assert (await log.state(fork)).labels["try"] == "2"
    again = await client.post(f"/api/sessions/{source}/forks", wanted)
    assert again.json["session"] == fork
    assert (await client.post(f"/api/sessions/{source}/forks", {"at": 99})).status == 400
    await project(log, source)
    await project(log, fork)
    family = (await client.get(f"/api/sessions/{fork}/family")).json
    members = {each["session"]: each for each in family["members"]}
    assert members[fork]["origin"] == source
    assert members[fork]["seq"] == 4
    from_above = (await client.get(f"/api/sessions/{source}/family")).json
    assert {each["session"] for each in from_above["members"]} == {source, fork}


async def test_an_export_is_the_stored_bodies_as_a_file(log: Log, client: Client) -> None:
    source = await talk(log)
    answered = await client.get(f"/api/sessions/{source}/export")
    assert answered.body == b"".join(event.body + b"\n" for event in await stored(log, source))
    assert answered.headers["content-disposition"] == f'attachment; filename="{source}.jsonl"'


async def test_what_is_not_there_is_said_without_a_trace(log: Log, client: Client) -> None:
    for path in ("", "/events/1", "/states/1", "/changes/1", "/export", "/live"):
        answered = await client.get(f"/api/sessions/sess_nothing{path}")
        assert answered.status == 404
        assert "no session sess_nothing" in answered.error
    assert (await client.get("/api/sessions/a%20b")).status == 400
    source = await talk(log)
    assert "its last is 9" in (await client.get(f"/api/sessions/{source}/events/10")).error
    assert (await client.get(f"/api/sessions/{source}/states/10")).status == 404


async def test_what_is_purged_while_it_is_looked_at_is_shown_no_more(
    log: Log, client: Client
) -> None:
    session = await talk(log)
    where = [f"/api/sessions/{session}{page}" for page in (*PAGES, "/states/3", "/changes/3")]
    looked_at = [each for each in where if not each.endswith("/live")]
    assert {(await client.get(each)).status for each in looked_at} == {200}
    await purge(log, target.bus_of(log), session, reason=Reason(by="a test", why="a test"))
    found = [await client.get(each) for each in looked_at]
    assert {each.status for each in found} == {410}
    assert not any(b"add" in each.body for each in found)


async def test_it_stops_while_somebody_is_watching(log: Log) -> None:
    source = await talk(log)
    async with inspected(log) as client:
        watching = client.stream(f"/api/sessions/{source}/live")
        news = await watching.__aenter__()
        await anext(news)
    assert [each async for each in news] == []
    await watching.__aexit__(None, None, None)


async def test_an_event_of_a_type_nobody_knows_is_shown_raw(log: Log, client: Client) -> None:
    session = names.mint()
    odd = follow(None, type=HOSTILE, payload={"a": float("nan"), "n": 2**70}, session=session)
    await write(log, session, [odd])
    [row] = (await client.get(f"/api/sessions/{session}/events")).json["rows"]
    assert row["type"] == HOSTILE
    event = (await client.get(f"/api/sessions/{session}/events/1")).json
    assert event["event"]["type"] == HOSTILE
    assert carry.MARK in {part["name"] for part in event["payload"]["lines"]}
    assert (await client.get(f"/api/sessions/{session}/states/1")).status == 200


async def test_marks_say_where_to_look(log: Log, client: Client) -> None:
    model = Model(asks(("t1", "add", {"x": 1})), RuntimeError("overloaded"))
    async with log.session(key="k") as session:
        await session.user_message("add")
        request = {"model": "m", "messages": session.state.messages()}
        await session.model_call(request, call=model)
        [call] = session.state.next.calls  # type: ignore[union-attr]
        await session.tool_call(call, run=lambda x: x / 0)
        request = {"model": "m", "messages": session.state.messages()}
        with pytest.raises(RuntimeError):
            await session.model_call(request, call=model)
    found = (await client.get(f"/api/sessions/{session.id}/marks")).json
    assert found["marks"] == [[2, "turn"], [6, "error"], [8, "error"]]


async def test_forks_imports_and_what_is_not_a_session_yet_have_an_end_or_none(
    log: Log, client: Client
) -> None:
    source = await long(log, 1_500)
    fork = await log.fork(source, at=1_200)
    assert (await client.get(f"/api/sessions/{fork}")).json["last"] == 1_201
    path = f"/api/sessions/{fork}/events?first=1150&last=1300"
    rows = (await client.get(path)).json["rows"]
    assert [row["seq"] for row in rows] == list(range(1_150, 1_202))
    half = names.mint()
    await write(log, half, chain(3, session=half), part="base")
    for page in (
        "",
        "/events",
        "/events/1",
        "/states/1",
        "/changes/1",
        "/export",
        "/live",
        "/marks",
    ):
        assert (await client.get(f"/api/sessions/{half}{page}")).status == 404, page
    gone = names.mint()
    await write(log, gone, [*chain(3, session=gone), tombstone(session=gone)])
    for page in (
        "",
        "/events",
        "/events/1",
        "/states/1",
        "/changes/1",
        "/export",
        "/live",
        "/marks",
    ):
        assert (await client.get(f"/api/sessions/{gone}{page}")).status == 410, page


async def test_children_are_in_the_family_of_who_called_them(log: Log, client: Client) -> None:
    async with log.session(key="parent") as parent, parent.child(name="helper") as child:
        await child.user_message("help")
        ids = {parent.id, child.id}
    for each in ids:
        await project(log, each)
    members = (await client.get(f"/api/sessions/{child.id}/family")).json["members"]
    assert {each["session"] for each in members} == ids
    assert next(each for each in members if each["session"] == child.id)["how"] == "child"


async def test_a_session_is_looked_at_while_redis_is_down_and_only_the_list_is_missing(
    nats_url: str, redis_server: Server
) -> None:
    async with flightlog.connect(nats=nats_url, redis=redis_server.url, tenant=TENANT) as log:
        source = await talk(log, key="k")
        redis_server.kill()
        async with inspected(log) as client:
            assert (await client.get("/api/sessions")).status == 503
            found = (await client.get(f"/api/sessions/{source}")).json
            assert (found["last"], found["row"]) == (9, None)
            state = (await client.get(f"/api/sessions/{source}/states/9")).json
            assert state["about"]["key"] == "k"
            made = await client.post(f"/api/sessions/{source}/forks", {"at": 4})
            assert made.status == 201
