"""Harness processes on servers of this test's own, and the inspector's page in a browser."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright

from flightlog import Log
from flightlog_recorder.embedded import Servers
from flightlog_recorder.inspector.serving import Where, serving
from tests.system.pages import BROWSER, watched
from tests.system.processes import Workshop


@pytest.fixture
def workshop(tmp_path: Path, servers: Servers) -> Iterator[Workshop]:
    """A folder for an agent, and the environment in which it finds the servers."""
    made = Workshop(tmp_path, servers.environment())
    yield made
    made.clear()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Debian's chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"], timeout=60_000
        )
        yield browser
        await browser.close()


@pytest.fixture
async def address(log: Log) -> AsyncIterator[str]:
    """Where the inspector is served; the token is in it."""
    async with serving(log, Where(port=0)) as site:
        yield site.url


@pytest.fixture
async def page(browser: Browser, address: str) -> AsyncIterator[Page]:
    """A page that has been let in; at the end it complained of nothing, and asked nobody else."""
    context = await browser.new_context()
    async with watched(await context.new_page(), address) as page:
        yield page
