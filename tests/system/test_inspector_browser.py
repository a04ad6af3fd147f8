"""The inspector in a real browser: what a person sees and does, and what hostile texts do not."""

import re
import shutil
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from flightlog import Log
from flightlog.wire import subject as names
from flightlog_recorder.inspector.serving import Where, serving
from tests.handmade import chain
from tests.recorder.batches import write_batches
from tests.recorder.recorded import project, talk
from tests.scripted import TENANT, Model, asks, payloads, says, stored

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium"),
    pytest.mark.timeout(90),  # a browser starts, beside other tests
]

HOSTILE = (
    "\x1b[31m</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"><a href=javascript:alert(1)>x</a>"
    "\u202etxt.exe\u202c\x00\u2066"
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"], timeout=60_000
        )
        yield browser
        await browser.close()


@pytest.fixture
async def address(log: Log) -> AsyncIterator[str]:
    async with serving(log, Where(port=0)) as site:
        yield site.url


@pytest.fixture
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    """A page that has been let in; at the end, its console has nothing to complain of."""
    page, complaints = await browser.new_page(), list[str]()

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(address)
    await expect(page.get_by_role("listbox", name="Sessions")).to_be_visible()
    yield page
    assert complaints == []


async def opened(page: Page, session: str, seq: int | str = "") -> None:
    """Go to a session, or to an event of it, by its address."""
    origin = await page.evaluate("location.origin")
    await page.goto(f"{origin}/sessions/{session}/{seq}".rstrip("/"))
    await expect(page.get_by_role("listbox", name="Events")).to_be_visible()


async def at(page: Page, seq: int) -> None:
    """Wait until the page stands at an event and shows it."""
    await expect(page.locator(".facts strong")).to_have_text(re.compile(rf"^{seq:,} "))
    await expect(page).to_have_url(re.compile(rf"/{seq}$"))


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
    await page.get_by_label("damaged").check()
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
    asked_for: list[str] = []
    page.on("request", lambda request: asked_for.append(request.url))
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
        await expect(page.locator(".detail")).to_have_attribute("aria-busy", "false")
        assert (await page.title()).endswith("Flightlog")
        text = await page.locator("body").inner_text()
        assert not set("\x1b\x00\u202e\u202c\u2066") & set(text)
        for tag in ("main img", "main script", "main a[href^=javascript]"):
            await expect(page.locator(tag)).to_have_count(0)
    here = page.url.split("/")[2]
    assert {url.split("/")[2] for url in asked_for} == {here}


async def test_a_line_of_a_megabyte_is_folded_and_comes_when_it_is_asked_for(
    page: Page, log: Log
) -> None:
    line = "z" * 1_000_000
    async with log.session(key="k") as session:
        await session.user_message(line)
    await opened(page, session.id, 2)
    more = page.get_by_role("button", name=re.compile("^Show all"))
    assert len(await page.locator("body").inner_text()) < 20_000
    await more.click()
    await expect(page.get_by_role("button", name=re.compile("more characters"))).to_be_visible()
    assert len(await page.locator(".value.long").inner_text()) > 50_000


async def test_a_session_of_many_events_has_few_rows_and_any_place_is_near(
    page: Page, log: Log
) -> None:
    session = names.mint()
    await write_batches(log, session, chain(20_000, session=session))
    await opened(page, session)
    await at(page, 20_000)
    await page.keyboard.press("Home")
    await at(page, 1)
    await page.get_by_role("slider").evaluate(
        "(slider) => { slider.value = 10000; slider.dispatchEvent(new Event('input')); }"
    )
    await at(page, 10_000)
    await expect(page.get_by_role("option", selected=True)).to_contain_text('"n": 9999')
    assert await page.get_by_role("option").count() < 120


async def test_a_phone_shows_the_timeline_then_the_event(
    browser: Browser, address: str, log: Log
) -> None:
    session = await talk(log)
    page = await browser.new_page(viewport={"width": 390, "height": 800})
    await page.goto(address)
    await expect(page.get_by_role("listbox", name="Sessions")).to_be_visible()
    await opened(page, session)
    await expect(page.locator(".detail")).to_be_hidden()
    await page.get_by_role("option").nth(4).click()
    await expect(page.locator(".facts strong")).to_have_text("5 tool_call")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.get_by_role("button", name="timeline").click()
    await expect(page.get_by_role("listbox", name="Events")).to_be_visible()
