"""The inspector in a real browser: what a person sees and does, and what hostile texts do not."""

import re

from msgspec.structs import replace
from playwright.async_api import Browser, Page, expect

from flightlog import Log
from tests.recorder.recorded import left_asking, project, talk
from tests.scripted import TENANT, Model, asks, payloads, says, stored
from tests.system.pages import HOSTILE, NEEDS_BROWSER, at, is_only_text, opened, settled

pytestmark = NEEDS_BROWSER


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


async def test_a_decision_is_answered(page: Page, log: Log) -> None:
    session = await left_asking(log, "deploy", {"to": HOSTILE})
    await opened(page, session)
    await page.get_by_role("group", name="A decision is needed").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("⟨202E⟩")
    await is_only_text(page)
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
        for more in ("All of the state", "Show the exact request"):
            for opener in await page.get_by_text(more).all():
                await opener.click()
        for message in await page.locator(".messages summary").all():
            await message.click()
        await expect(page.locator(".messages details > div:empty")).to_have_count(0)
        await expect(page.locator(".request > button")).to_have_count(0)
        await is_only_text(page)
    for key in ("y", "f"):
        await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await is_only_text(page)
        await page.keyboard.press("Escape")


async def test_a_session_is_exported_from_the_page(page: Page, log: Log) -> None:
    session = await talk(log)
    await opened(page, session)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Export").click()
    file = await download.value
    assert file.suggested_filename == f"{session}.jsonl"
    lines = (await file.path()).read_bytes().splitlines()
    assert lines == [event.body for event in await stored(log, session)]
