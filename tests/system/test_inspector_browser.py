"""The inspector in a real browser: what a person sees and does, and what hostile texts do not."""

import asyncio
import re

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from flightlog import Log, Session
from flightlog_recorder.inspector import stream
from tests.recorder.recorded import left_running, project, talk
from tests.scripted import TENANT, Model, asks, payloads, says, stored
from tests.system.pages import NEEDS_BROWSER, at, opened, settled

pytestmark = NEEDS_BROWSER

HOSTILE = (
    "\x1b[31m</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"><a href=javascript:alert(1)>x</a>"
    "\u202etxt.exe\u202c\x00\u2066"
)


async def test_the_token_goes_from_the_address_and_a_stranger_sees_nothing(
    page: Page, address: str, browser: Browser
) -> None:
    assert "token" not in page.url
    assert await page.evaluate("document.cookie") == ""
    stranger = await browser.new_page()
    await stranger.goto(address.partition("#")[0])
    await expect(stranger.get_by_role("heading")).to_have_text("Who is there?")


async def test_sessions_are_filtered_and_opened(page: Page, log: Log) -> None:
    ids = [await talk(log, key=f"night/{n}", labels={"n": str(n)}) for n in range(3)]
    for each in ids:
        await project(log, each)
    await page.reload()
    options = page.get_by_role("listbox", name="Sessions").get_by_role("option")
    await expect(options).to_have_count(3)
    await page.get_by_label("Label, as name=value").fill("n=1")
    await expect(options).to_have_count(1)
    await expect(options).to_contain_text("night/1")
    await page.get_by_label("Status", exact=True).select_option("failed")
    await expect(options).to_have_count(0)
    await expect(page.get_by_text("No session is like that.")).to_be_visible()
    await page.get_by_label("Status", exact=True).select_option("completed")
    await options.click()
    await expect(page).to_have_url(re.compile(rf"/sessions/{ids[1]}"))
    await at(page, 9)


async def test_costs_damage_and_the_family_are_shown(page: Page, log: Log) -> None:
    assert log.store is not None
    source = await talk(log, key="source")
    fork = await log.fork(source, at=4, labels={"try": "2"})
    for each in (source, fork):
        await project(log, each)
    row = await log.store.row(TENANT, source)
    assert row is not None
    await log.store.save_row(replace(row, cost=0.25, read_to=row.read_to + 1))
    await log.store.note_damage(TENANT, source, "two events are gone")
    await page.reload()
    options = page.get_by_role("listbox", name="Sessions").get_by_role("option")
    await expect(options).to_have_count(2)
    await page.get_by_role("checkbox", name="damaged").check()
    await expect(options).to_have_count(1)
    await expect(options).to_contain_text("$0.2500")
    await opened(page, fork)
    await page.keyboard.press("y")
    tree = page.get_by_role("dialog")
    await expect(tree).to_contain_text("forked at 4")
    await expect(tree).to_contain_text("try=2")
    await tree.get_by_role("link", name="source").click()
    await expect(page).to_have_url(re.compile(rf"/sessions/{source}"))


async def test_an_id_that_the_catalog_does_not_know_is_opened_all_the_same(
    page: Page, log: Log
) -> None:
    session = await talk(log, key="night/1")
    await page.get_by_label("Key begins with").fill(session)
    await page.keyboard.press("Enter")
    await at(page, 9)
    await expect(page.get_by_role("heading", level=1)).to_have_text("night/1")


async def test_one_steps_through_a_session_by_keyboard(page: Page, log: Log) -> None:
    session = await talk(log)
    await opened(page, session, 5)
    await at(page, 5)
    await expect(page.locator(".headline")).to_have_text("waiting for 1 tool (add)")
    await page.keyboard.press("j")
    await at(page, 6)
    await expect(page.get_by_label("What it changed")).to_contain_text("running")
    await page.keyboard.press("Home")
    await at(page, 1)
    await page.keyboard.press("t")
    await at(page, 5)
    await page.keyboard.press("g")
    await page.get_by_role("spinbutton").fill("8")
    await page.keyboard.press("Enter")
    await at(page, 8)
    chosen = page.get_by_role("option", selected=True)
    await expect(chosen).to_have_attribute("aria-posinset", "8")
    events = page.get_by_role("listbox", name="Events")
    await expect(events).to_have_attribute("aria-activedescendant", re.compile("-7$"))
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("listbox", name="Sessions")).to_be_visible()


async def test_a_live_session_grows_and_is_followed(page: Page, log: Log) -> None:
    async with log.session(key="k") as session:
        await opened(page, session.id)
        await at(page, 1)
        for n in range(3):
            await session.user_message(f"message {n}")
            await at(page, n + 2)
        await expect(page.get_by_role("status")).to_contain_text("4 in all")
        await page.keyboard.press("Home")
        await at(page, 1)
        await session.user_message("one more")
        await expect(page.locator(".place")).to_have_text("1 of 5")


async def test_a_session_is_forked_at_the_event_one_looks_at(page: Page, log: Log) -> None:
    session = await talk(log)
    await opened(page, session, 4)
    await at(page, 4)
    await page.keyboard.press("f")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("1 external effect after 4 is not undone")
    await dialog.get_by_label("Key").fill("what-if")
    await dialog.get_by_role("button", name="Fork").click()
    await expect(page.locator(".id")).not_to_have_text(session)
    await at(page, 5)
    fork = await log.look_up("what-if")
    assert fork is not None
    assert fork in page.url
    [forked] = await payloads(log, fork, "session_forked")
    assert (forked["session"], forked["seq"]) == (session, 4)
    await project(log, session)
    await project(log, fork)
    await page.keyboard.press("y")
    await page.get_by_role("dialog").get_by_role("link").first.click()
    await at(page, 9)


async def waiting(log: Log) -> str:
    """A session whose call was left in flight, and waits for a person."""
    model = Model(asks(("t1", "deploy", {"to": HOSTILE})))
    with pytest.raises(KeyboardInterrupt):
        async with log.session(key="deploy") as session:
            await session.user_message("deploy it")
            request = {"model": "m", "messages": session.state.messages()}
            await session.model_call(request, call=model)
            [call] = session.state.next.calls  # type: ignore[union-attr]
            async with session.calling(call):
                raise KeyboardInterrupt
    async with log.session(key="deploy") as session:
        return session.id


async def test_a_decision_is_answered(page: Page, log: Log) -> None:
    session = await waiting(log)
    await opened(page, session)
    await page.get_by_role("group", name="A decision is needed").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("It took effect").check()
    await dialog.get_by_label("Result, as JSON").fill('{"deployed": true')
    await dialog.get_by_label("Why").fill("I looked")
    await dialog.get_by_role("button", name="Send").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("not JSON")
    await dialog.get_by_label("Result, as JSON").fill('{"deployed": true}')
    await dialog.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("button", name="Sent")).to_be_disabled()
    async with log.session(id=session):
        pass
    [made] = await payloads(log, session, "decision_made")
    assert (made["ruling"], made["reason"]) == ("result", "I looked")
    await expect(page.get_by_role("group", name="A decision is needed")).to_have_count(0)


async def test_hostile_texts_are_only_ever_text(page: Page, log: Log) -> None:
    model = Model(asks(("t1", HOSTILE, {HOSTILE: HOSTILE})), says(HOSTILE))
    async with log.session(key=HOSTILE, labels={HOSTILE[:60]: HOSTILE}) as session:
        await session.user_message([{"type": "text", "text": HOSTILE}, {"x": "y" * 1_000_000}])
        for _ in range(2):
            request = {"model": HOSTILE, "messages": session.state.messages()}
            await session.model_call(request, call=model)
            for call in getattr(session.state.next, "calls", ()):
                await session.tool_call(call, run=lambda **_: HOSTILE)
        await session.append("oddity", {"a": HOSTILE})
        await session.checkpoint({"html": HOSTILE}, label=HOSTILE)
    await project(log, session.id)
    await page.reload()
    row = page.get_by_role("listbox", name="Sessions").get_by_role("option")
    await expect(row).to_contain_text("⟨202E⟩")
    last = len(await stored(log, session.id))
    for seq in range(1, last + 1):
        await opened(page, session.id, seq)
        await expect(page.locator(".facts strong")).to_have_text(re.compile(rf"^{seq} "))
        await settled(page)
        assert (await page.title()).endswith("Flightlog")
        text = await page.locator("body").inner_text()
        assert not set("\x1b\x00\u202e\u202c\u2066") & set(text)
        for tag in ("main img", "main script", "main a[href^=javascript]"):
            await expect(page.locator(tag)).to_have_count(0)


async def test_progress_is_shown_until_something_is_stored(page: Page, log: Log) -> None:
    async with log.session(key="k") as session:
        await opened(page, session.id)
        await at(page, 1)
        progress = page.locator(".progress")
        saying = asyncio.create_task(say_again(session, f"40 % {HOSTILE}"))
        await expect(progress).to_contain_text("40 % ⟨001B⟩[31m</script>")
        saying.cancel()
        await session.user_message("done")
        await at(page, 2)
        await expect(progress).to_be_hidden()


async def say_again(session: Session, words: str) -> None:
    """Who comes late hears nothing of what was said before."""
    while True:
        await session.progress(words)
        await asyncio.sleep(0.05)


async def test_a_session_is_called_stalled_until_it_goes_on(
    page: Page, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.store is not None
    monkeypatch.setattr(stream, "ALIVE", 1.0)
    session = await left_running(log)
    status = page.locator(".about .status")
    await opened(page, session)
    await expect(status).to_have_text("running")
    row = await log.store.row(TENANT, session)
    assert row is not None
    assert await log.store.note_stalled(row, row.last_ts)
    await expect(status).to_have_text("stalled")
    await page.reload()
    await expect(status).to_have_text("stalled")
    await page.get_by_role("link", name="Flightlog").click()
    await page.get_by_role("checkbox", name="stalled").check()
    await expect(page.get_by_role("listbox").get_by_role("option")).to_contain_text("stalled")
    await page.get_by_role("listbox").get_by_role("option").click()
    await expect(status).to_have_text("stalled")
    async with log.session(id=session):
        await expect(status).to_have_text("running")


async def test_a_session_is_exported_from_the_page(page: Page, log: Log) -> None:
    session = await talk(log)
    await opened(page, session)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export").click()
    file = await download.value
    assert file.suggested_filename == f"{session}.jsonl"
    lines = (await file.path()).read_bytes().splitlines()
    assert lines == [event.body for event in await stored(log, session)]


async def test_a_timeline_shows_turns_lanes_errors_and_what_became_of_the_process(
    page: Page, log: Log
) -> None:
    session = await eventful(log)
    await opened(page, session, 1)
    rows = page.get_by_role("listbox", name="Events").get_by_role("option")
    told = {event.seq: event.type for event in await stored(log, session)}
    for seq, kind in told.items():
        await expect(rows.nth(seq - 1)).to_contain_text(kind.replace("_", " "))
    by_type = {kind: rows.nth(seq - 1) for seq, kind in told.items()}
    await expect(by_type["session_resumed"].locator(".mark")).to_have_text("crash")
    await expect(by_type["checkpoint"]).to_contain_text("half way")
    await expect(by_type["compact"]).to_contain_text("is a summary now")
    await expect(rows.locator(".error")).to_have_count(1)
    await expect(rows.locator(".turn")).to_have_count(2)
    results = rows.filter(has_text="tool result")
    for at_once in await results.all():
        await expect(at_once.locator(".took")).to_have_text(re.compile(r"^\d+ ms$"))
    lanes = rows.filter(has_text="tool call").locator(".lane.here")
    assert [await each.get_attribute("class") for each in await lanes.all()] == [
        "lane s c0 here",
        "lane s c1 here",
    ]
    for mark in ("turn", "error", "context", "crash"):
        await expect(page.locator(f".marks .{mark}").first).to_be_attached()


async def eventful(log: Log) -> str:
    """Two tools at once, one of which fails; a checkpoint, a summary, and a process that died."""
    model = Model(asks(("t1", "add", {"x": 1}), ("t2", "divide", {"x": 0})))
    async with log.session() as session:
        await session.user_message("do both")
        request = {"model": "m", "messages": session.state.messages()}
        await session.model_call(request, call=model)
        add, divide = session.state.next.calls  # type: ignore[union-attr]
        async with session.calling(add) as adding, session.calling(divide) as dividing:
            dividing.error(ZeroDivisionError("division by zero"))
            adding.result(2)
        await session.checkpoint({}, label="half way")
        await session.compact("both were done", keep_from=session.state.seq)
        await session.user_message("go on")
        async with log.session(id=session.id) as second:
            await second.end("completed")
        return session.id
