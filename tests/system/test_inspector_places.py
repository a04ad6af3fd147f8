"""The inspector from place to place: by key, by link, back and forth; what stands at each."""

import re

from playwright.async_api import Page, expect

from flightlog import Log
from tests.recorder.recorded import talk
from tests.scripted import Model, asks, stored
from tests.system.pages import NEEDS_BROWSER, at, opened, settled

pytestmark = NEEDS_BROWSER


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


async def test_each_key_goes_where_the_help_says(page: Page, log: Log) -> None:
    session = await eventful(log)
    await opened(page, session, 1)
    await at(page, 1)
    seqs = {event.type: event.seq for event in reversed(await stored(log, session))}
    last = len(await stored(log, session))
    error = next(e.seq for e in await stored(log, session) if e.payload.get("outcome") == "error")
    said = [e.seq for e in await stored(log, session) if e.type == "user_message"]
    ways = [
        ("u", said[0]), ("u", said[1]), ("U", said[0]), ("e", error), ("T", seqs["tool_call"] + 1),
        ("End", last), ("E", error), ("PageUp", 1), ("PageDown", last), ("k", last - 1),
        ("ArrowDown", last), ("ArrowLeft", last - 1), ("ArrowRight", last), ("Home", 1),
    ]  # fmt: skip
    for key, seq in ways:
        await page.keyboard.press(key)
        await at(page, seq)
    await page.keyboard.press("/")
    await page.get_by_role("searchbox").fill("HALF way")
    await page.keyboard.press("Enter")
    await at(page, seqs["checkpoint"])
    await page.keyboard.press("n")
    await expect(page.get_by_role("alert").last).to_contain_text("nothing of that after here")
    await page.keyboard.press("End")
    await at(page, last)
    await page.keyboard.press("N")
    await at(page, seqs["checkpoint"])
    follow = page.get_by_role("button", name="Follow")
    await expect(follow).to_have_attribute("aria-pressed", "false")
    await page.keyboard.press("l")
    await at(page, last)
    await expect(follow).to_have_attribute("aria-pressed", "true")
    await settled(page)
    await page.get_by_text("All of the state").click()
    for key, name in (("3", "State"), ("1", "Event")):
        await page.keyboard.press(key)
        heading = page.get_by_role("region", name=name, exact=True).get_by_role("heading").first
        await expect(heading).to_be_in_viewport()


async def test_a_link_leads_to_its_place_and_the_way_back_to_where_one_was(
    page: Page, log: Log
) -> None:
    first, second = await talk(log), await talk(log)
    await opened(page, first, 3)
    await at(page, 3)
    await page.keyboard.press("j")
    await at(page, 4)
    await opened(page, second, 5)
    await at(page, 5)
    await page.go_back()
    await expect(page).to_have_url(re.compile(f"/sessions/{first}/4$"))
    await at(page, 4)
    await opened(page, second, 999)
    await at(page, 9)  # it has no more
    await page.get_by_role("button", name="answers 8").click()
    await at(page, 8)


async def test_a_link_to_no_session_says_so(page: Page, log: Log) -> None:
    await talk(log)
    origin = await page.evaluate("location.origin")
    stranger = await page.context.new_page()
    for link in ("%ff", "%00", "%3Cscript%3E", "sess_nothing", "sess_nothing/4"):
        await stranger.goto(f"{origin}/sessions/{link}")
        await expect(stranger.get_by_role("heading", name="No such session")).to_be_visible()
    await expect(stranger.get_by_text("no session sess_nothing")).to_be_visible()


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
