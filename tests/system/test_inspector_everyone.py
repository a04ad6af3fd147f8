"""The inspector for everyone: by screen reader, by keys alone, light or dark, on a phone."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from flightlog import Log
from tests.recorder.recorded import left_running, project, talk
from tests.scripted import TENANT, Model, asks
from tests.system.pages import NEEDS_BROWSER, at, opened, settled, watched

pytestmark = NEEDS_BROWSER

PHONE = 390  # pixels
LONG = "a_word_without_any_place_to_break_it_" * 20
ROLES = frozenset(
    {"button", "checkbox", "combobox", "dialog", "heading", "link", "listbox", "navigation"}
    | {"option", "radio", "region", "search", "searchbox", "slider", "spinbutton", "textbox"}
    | {"toolbar"}
)  # what a screen reader announces by its name

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
READABLE = 4.5  # WCAG 2.2, AA: of a text's luminance to that of what lies behind it


def listed(page: Page) -> Locator:
    """The rows of the list."""
    return page.get_by_role("listbox", name="Sessions").get_by_role("option")


async def many_kinds(log: Log) -> dict[str, str]:
    """Sessions of every look: done, asking, stalled, damaged."""
    assert log.store is not None
    ids = {"done": await talk(log, key="night/1", labels={"job": "night"})}
    ids["asks"] = await waiting(log)
    for each in ids.values():
        await project(log, each)
    ids["stalled"] = await left_running(log)
    row = await log.store.row(TENANT, ids["stalled"])
    assert row is not None
    assert await log.store.note_stalled(row, "2026-05-06T14:23:01.123456Z")
    ids["damaged"] = await talk(log, key="night/2")
    await project(log, ids["damaged"])
    await log.store.note_damage(TENANT, ids["damaged"], "two events are gone")
    return ids


async def waiting(log: Log) -> str:
    """A session with a failed call, whose next one waits for a person."""
    model = Model(asks(("t1", "deploy", {"to": [LONG]}), ("t2", "test", {"count": 1})))
    with pytest.raises(KeyboardInterrupt):
        async with log.session(key=LONG, labels={"job": LONG}) as session:
            await session.user_message(LONG)
            request = {"model": LONG, "messages": session.state.messages()}
            await session.model_call(request, call=model)
            deploy, test = session.state.next.calls  # type: ignore[union-attr]
            await session.tool_call(test, run=lambda count: count / 0)
            async with session.calling(deploy):
                raise KeyboardInterrupt
    async with log.session(key=LONG) as session:
        return session.id


async def views(page: Page, ids: dict[str, str]) -> AsyncGenerator[str]:
    """Every view, one after the other."""
    await page.reload()
    await expect(listed(page)).to_have_count(len(ids))
    yield "sessions"
    for kind, session in ids.items():
        await opened(page, session)
        await settled(page)
        yield kind
        for opener in (page.get_by_text("All of the state"), page.get_by_text("chain")):
            await opener.evaluate("(summary) => summary.click()")
        yield f"{kind}, opened"
    for key in ("?", "f", "g", "/", "y"):
        await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_visible()
        yield f"key {key}"
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
    await opened(page, ids["asks"])
    await page.get_by_role("button", name="Decide").click()
    await page.get_by_label("It took effect").check()
    yield "decide"
    await page.keyboard.press("Escape")


async def test_a_screen_reader_has_a_name_for_all_that_can_be_used(page: Page, log: Log) -> None:
    ids = await many_kinds(log)
    reader = await page.context.new_cdp_session(page)
    async for view in views(page, ids):
        tree = await reader.send("Accessibility.getFullAXTree")
        seen = [node for node in tree["nodes"] if not node.get("ignored")]
        named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in seen]
        assert [role for role, name in named if role in ROLES and not name.strip()] == [], view
        assert [name for role, name in named if role == "heading"], view
    await page.get_by_role("link", name="Flightlog").click()
    for key, told in (("night/2", "damaged, 9 events, 30 tokens"), ("job/1", "stalled, 1 event")):
        row = listed(page).filter(has_text=key)
        await expect(row).to_have_accessible_name(re.compile(f"^{key}, {told}, active "))


async def test_all_of_it_is_reached_with_keys_alone_and_one_sees_where_one_is(
    page: Page, log: Log
) -> None:
    ids = await many_kinds(log)
    await page.reload()
    await expect(listed(page)).to_have_count(len(ids))
    await page.keyboard.press("/")
    await expect(page.get_by_label("Key begins with")).to_be_focused()
    await page.keyboard.type("night/1")
    await expect(listed(page)).to_have_count(1)
    await page.keyboard.press("Enter")
    await at(page, 9)
    names = set[str]()
    for _ in range(25):
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if await focused.count():
            names.add(await focused.evaluate("(e) => e.ariaLabel || e.textContent.trim()"))
            assert await focused.evaluate(
                "(e) => getComputedStyle(e).outlineStyle !== 'none' || e.matches('.list')"
            )
    assert {"Keys", "Follow", "Fork…", "Family", "Export", "Event", "Events"} <= names
    await page.get_by_role("slider").focus()
    await page.keyboard.press("ArrowLeft")
    await at(page, 8)
    await page.keyboard.press("y")
    await expect(page.get_by_role("dialog", name="Family").get_by_role("link")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("slider")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("listbox", name="Sessions")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_stands_out_from_what_is_behind_it(
    browser: Browser, address: str, log: Log, scheme: Literal["light", "dark"]
) -> None:
    ids = await many_kinds(log)
    async with watched(
        await browser.new_page(color_scheme=scheme, reduced_motion="reduce"), address
    ) as page:
        async for view in views(page, ids):
            assert await page.evaluate(CONTRAST, READABLE) == [], view
        background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (min(map(int, re.findall(r"\d+", background)[:3])) > 127) == (scheme == "light")


async def test_on_a_phone_nothing_is_wider_than_it(
    browser: Browser, address: str, log: Log
) -> None:
    ids = await many_kinds(log)
    narrow = await browser.new_page(
        viewport={"width": PHONE, "height": 800}, has_touch=True, is_mobile=True
    )
    async with watched(narrow, address) as page:
        async for view in views(page, ids):
            width = "Math.max(document.documentElement.scrollWidth, innerWidth)"
            assert await page.evaluate(width) <= PHONE, view
            for part in await page.locator("main .detail, dialog[open]").all():
                assert await part.evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0, view
        await opened(page, ids["done"])
        await expect(page.locator(".detail")).to_be_hidden()
        await page.get_by_role("option").nth(4).tap()
        await expect(page.locator(".facts strong")).to_have_text("5 tool_call")
        await page.get_by_role("button", name="timeline").tap()
        await expect(page.get_by_role("listbox", name="Events")).to_be_visible()
