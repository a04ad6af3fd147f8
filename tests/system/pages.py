"""The inspector's page as a person has it before them: where to go, and when it is there."""

import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import ConsoleMessage, Page, Request, expect

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)

NEEDS_BROWSER = [
    pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium"),
    pytest.mark.timeout(90),  # a browser starts, beside other tests
]

HOSTILE = (
    "\x1b[31m</script><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\"><a href=javascript:alert(1)>x</a>"
    "\u202etxt.exe\u202c\x00\u2066"
)


@asynccontextmanager
async def watched(page: Page, address: str) -> AsyncGenerator[Page]:
    """A page that has been let in; at the end it complained of nothing, and asked nobody else."""
    complaints, asked = list[str](), set[str]()

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def sent(request: Request) -> None:
        asked.add(request.url.split("/")[2])

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", sent)
    await page.goto(address)
    await expect(page.get_by_role("listbox", name="Sessions")).to_be_visible()
    yield page
    assert complaints == []
    assert asked == {address.split("/")[2]}


async def opened(page: Page, session: str, seq: int | str = "") -> None:
    """Go to a session, or to an event of it, by its address."""
    origin = await page.evaluate("location.origin")
    await page.goto(f"{origin}/sessions/{session}/{seq}".rstrip("/"))
    await expect(page.get_by_role("listbox", name="Events")).to_be_visible()


async def at(page: Page, seq: int) -> None:
    """Wait until the page stands at an event and shows it."""
    await expect(page.locator(".facts strong")).to_have_text(re.compile(rf"^{seq:,} "))
    await expect(page).to_have_url(re.compile(rf"/{seq}$"))


async def settled(page: Page) -> None:
    """Wait until the event, the state and what changed are all there."""
    await expect(page.locator(".detail")).to_have_attribute("aria-busy", "false")


async def is_only_text(page: Page) -> None:
    """Nothing of `HOSTILE` has become an element, a title, or a character that moves others."""
    assert (await page.title()).endswith("Flightlog")
    text = await page.locator("body").inner_text()
    assert not set("\x1b\x00\u202e\u202c\u2066") & set(text)
    for tag in ("img", "script", "a[href^=javascript]"):
        await expect(page.locator(f":is(main, dialog) {tag}")).to_have_count(0)
