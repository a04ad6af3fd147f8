"""The inspector while something happens: a session grows, tells its progress, falls silent."""

import asyncio

import pytest
from playwright.async_api import Browser, Page, expect

from flightlog import Log, Session
from flightlog_recorder.inspector import stream
from flightlog_recorder.inspector.serving import Where, serving
from tests.recorder.recorded import left_running
from tests.scripted import TENANT
from tests.system.pages import HOSTILE, NEEDS_BROWSER, at, opened

pytestmark = NEEDS_BROWSER


async def test_a_live_session_grows_and_is_followed(page: Page, log: Log) -> None:
    async with log.session(key="k") as session:
        await opened(page, session.id)
        await at(page, 1)
        for n in range(3):
            await session.user_message(f"message {n}")
            await at(page, n + 2)
        await expect(page.locator("#say")).to_contain_text("4 in all")
        await page.keyboard.press("Home")
        await at(page, 1)
        await session.user_message("one more")
        await expect(page.locator(".place")).to_have_text("1 of 5")


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


async def test_a_page_says_that_the_inspector_has_gone_and_what_to_do_when_it_is_another(
    browser: Browser, log: Log
) -> None:
    page = await browser.new_page()
    session = await left_running(log)
    async with serving(log, Where(port=0)) as site:
        await page.goto(site.url)
        await expect(page.get_by_role("listbox", name="Sessions")).to_be_visible()
        await opened(page, session)
        await at(page, 1)
        connected = page.get_by_role("toolbar").get_by_role("status")
        await expect(connected).to_be_empty()
    await expect(connected).to_have_text("not connected, trying again")
    async with serving(log, Where(port=site.port)):
        await expect(connected).to_contain_text("open the address that flightlog inspect prints")
