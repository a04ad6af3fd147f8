"""The inspector before what is large: many sessions, long ones, long texts. Little is read."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Page, Response, Route, expect

from flightlog import Log
from flightlog.cache import store
from flightlog.cache.catalog import Row
from flightlog.wire import subject as names
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projector
from tests.handmade import chain
from tests.recorder.batches import write_batches
from tests.recorder.recorded import left_asking
from tests.scripted import TENANT
from tests.system.pages import NEEDS_BROWSER, at, opened, settled

pytestmark = NEEDS_BROWSER

MANY = 3_000  # sessions; the list knows no more of 100,000 than of these: the pages it asked for
LONG = 100_000  # events
AT_ONCE = 100  # rows that are stored at a time
PAGE = 200  # rows and events that the page asks for at a time
ELEMENTS = 2_500  # of a page, whatever it shows


async def fill(log: Log, count: int) -> None:
    """A catalog of so many sessions, as a projector leaves it."""
    assert log.store is not None
    for start in range(0, count, AT_ONCE):
        rows = [row(n) for n in range(start, min(start + AT_ONCE, count))]
        await asyncio.gather(*map(log.store.save_row, rows))


def row(n: int) -> Row:
    active = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n)
    return Row(
        tenant=TENANT,
        session=names.mint(),
        key=f"nightly/{n:06}",
        status="failed" if n % 10 == 0 else "completed",
        labels={"team": f"team-{n % 7}"},
        seq=12,
        last_ts=active.isoformat(),
        usage={"input_tokens": n},
        read_to=n + 1,
        sequence=n + 1,
    )


async def test_a_catalog_of_many_sessions_is_asked_for_by_the_page_and_filtered_by_the_server(
    page: Page, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_KEYS_SCANNED", MANY // 10)
    await fill(log, MANY)
    answers: list[Response] = []
    page.on("response", lambda heard: answers.append(heard) if "/api/" in heard.url else None)
    await page.reload()
    rows = page.get_by_role("listbox", name="Sessions").get_by_role("option")
    await expect(rows.first).to_contain_text(f"nightly/{MANY - 1:06}")
    await expect(page.locator(".total")).to_have_text(f"{PAGE}+")
    assert sum(int(each.headers["content-length"]) for each in answers) < 120_000
    assert len([each for each in answers if "/api/sessions" in each.url]) == 1
    assert await rows.count() < 60
    for known in (PAGE, 2 * PAGE, 3 * PAGE):
        await expect(page.locator(".total")).to_have_text(f"{known}+")
        await page.keyboard.press("End")
        await expect(page.locator(".total")).to_have_text(f"{known + PAGE}+")
        assert await rows.count() < 60
    assert len([each for each in answers if "limit=" in each.url]) <= 6  # and what refreshed it
    await page.get_by_label("Key begins with").fill("n")
    too_many = page.get_by_text("More keys begin like that than are looked at")
    await expect(too_many).to_be_visible()
    await page.get_by_label("Status").select_option("failed")
    await page.get_by_label("Label, as name=value").fill("team=team-3")
    await page.get_by_label("Key begins with").fill("nightly/0010")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("nightly/001060")
    await expect(too_many).to_be_hidden()
    assert await page.evaluate("document.querySelectorAll('*').length") < ELEMENTS


async def projected(log: Log, session: str) -> None:
    """Leave what a projector leaves: the row, the snapshot, and those on the way to it."""
    assert log.store is not None
    [seen] = await log.store.look(TENANT, [session])
    projector = Projector(log.bus, log.store, metrics=Metrics())
    await projector.project(Job(TENANT, session, 0, seen))


async def test_a_session_of_100_000_events_is_painted_without_reading_its_log(
    page: Page, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = names.mint()
    await write_batches(log, session, chain(LONG, session=session))
    await projected(log, session)
    read, painted, ask = list[int](), asyncio.Event(), log.bus.page

    async def counted(*asked: Any, **narrowed: Any) -> Any:
        found = await ask(*asked, **narrowed)
        read.append(len(found.messages))
        return found

    async def held_back(route: Route) -> None:
        await painted.wait()
        await route.continue_()

    monkeypatch.setattr(log.bus, "page", counted)
    await page.route("**/marks", held_back)  # these come when all else is there, and read it all
    await opened(page, session)
    await at(page, LONG)
    await settled(page)
    await expect(page.get_by_role("option", selected=True)).to_contain_text(f'"n": {LONG - 1}')
    assert sum(read) < 5_000
    painted.set()
    for seq in (1, LONG // 2, LONG - 3):
        await page.get_by_role("slider").fill(str(seq))
        await at(page, seq)
        await settled(page)
        await expect(page.get_by_role("option", selected=True)).to_contain_text(f'"n": {seq - 1}')
        assert await page.get_by_role("option").count() < 80
        assert await page.evaluate("document.querySelectorAll('*').length") < ELEMENTS


async def test_a_line_of_a_megabyte_is_folded_and_comes_when_it_is_asked_for(
    page: Page, log: Log
) -> None:
    line = "z" * 1_000_000
    async with log.session(key="k") as session:
        await session.user_message(line)
    await opened(page, session.id, 2)
    await settled(page)
    event = page.get_by_role("region", name="Event")
    assert len(await page.locator("body").inner_text()) < 20_000
    await event.get_by_role("button", name=re.compile("^Show all")).click()
    await expect(event.get_by_role("button", name=re.compile("more characters"))).to_be_visible()
    assert len(await event.locator(".value.long").inner_text()) > 50_000


async def test_what_lies_in_blobs_is_read_in_the_state_and_the_difference_when_asked_for(
    page: Page, log: Log
) -> None:
    texts = {name: f"{name} begins\n" + f"{name} " * 90_000 for name in ("said", "old", "new")}
    async with log.session(key="k") as session:
        await session.user_message(texts["said"])
        for name in ("old", "new"):
            await session.checkpoint({"report": texts[name]}, label=name)
    await opened(page, session.id, 4)
    await settled(page)
    assert len(await page.locator("body").inner_text()) < 20_000
    changes = page.get_by_role("region", name="What it changed")
    for name in ("old", "new"):
        await changes.get_by_role("button", name=re.compile("^Show all")).first.click()
        await expect(changes).to_contain_text(f"{name} begins")
    state = page.get_by_role("region", name="State")
    await state.get_by_text("All of the state").click()
    await state.get_by_role("button", name=re.compile("^Show all")).first.click()
    await expect(state).to_contain_text("new begins")
    await state.locator(".messages summary").click()
    await state.locator(".messages").get_by_role("button", name=re.compile("^Show all")).click()
    await expect(state.locator(".messages")).to_contain_text("said begins")


async def test_the_arguments_that_a_person_decides_about_are_all_to_be_had(
    page: Page, log: Log
) -> None:
    body = "these are the words\n" * 20_000
    session = await left_asking(log, "mail", {"body": body})
    await opened(page, session)
    await page.get_by_role("group", name="A decision is needed").get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name=re.compile("^Show all")).click()
    await expect(dialog).to_contain_text("these are the words")
