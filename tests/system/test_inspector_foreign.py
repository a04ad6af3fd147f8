"""A foreign page in the browser of somebody who was let in: it reads nothing and does nothing."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from playwright.async_api import Page, expect
from starlette.responses import Response

from flightlog import Log
from flightlog_recorder.inspector.access import Access
from tests.recorder.recorded import talk
from tests.system.pages import NEEDS_BROWSER

pytestmark = NEEDS_BROWSER

# Each way that a page has to ask another server; what came back, if it may know.
ATTEMPTS = """async ([origin, session]) => {
  const fork = `${origin}/api/sessions/${session}/forks`;
  const body = JSON.stringify({ at: 4, key: "stolen" });
  const json = { "content-type": "application/json" };
  const as = { credentials: "include" };
  const post = { ...as, method: "POST", body };
  const told = (asked) => asked.then((response) => response.text(), () => "");
  const form = document.createElement("form");
  Object.assign(form, { method: "POST", action: fork, enctype: "text/plain", target: "there" });
  form.append(Object.assign(document.createElement("input"), { name: body, value: "" }));
  const frame = Object.assign(document.createElement("iframe"), { name: "there" });
  document.body.append(frame, form);
  form.submit();
  await new Promise((done) => frame.addEventListener("load", done, { once: true }));
  frame.src = `${origin}/sessions/${session}`;
  await new Promise((done) => frame.addEventListener("load", done, { once: true }));
  const script = Object.assign(document.createElement("script"), { src: `${origin}/api/sessions` });
  const failed = new Promise((done) => script.addEventListener("error", () => done("")));
  document.body.append(script);
  return [
    await told(fetch(`${origin}/api/sessions`, as)),
    await told(fetch(`${origin}/api/sessions/${session}/export`, { ...as, mode: "no-cors" })),
    await told(fetch(fork, { ...post, headers: { ...json, "flightlog-write": "1" } })),
    await told(fetch(fork, { ...post, headers: json })),
    await told(fetch(fork, { ...post, mode: "no-cors" })),
    await failed,
    frame.contentDocument?.body.textContent ?? "",
  ].join("");
}"""

OURS = """([session]) => fetch(`/api/sessions/${session}/forks`, {
  method: "POST",
  headers: { "content-type": "application/json", "flightlog-write": "1" },
  body: JSON.stringify({ at: 4, key: "made" }),
}).then((response) => response.status)"""


@pytest.fixture
async def foreign() -> AsyncIterator[str]:
    """Another server on this machine: for a browser the same site, so that cookies go along."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        page = b"<!doctype html><title>foreign</title><body></body>"
        head = f"HTTP/1.0 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(page)}\r\n\r\n"
        writer.write(head.encode() + page)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], int | None]:
    """What was asked of the API, and the status of its refusal; None for what was let in."""
    found: dict[tuple[str, str], int | None] = {}
    refusal = Access.refusal

    def told(access: Access, method: str, path: str, headers: Mapping[str, str]) -> Response | None:
        answer = refusal(access, method, path, headers)
        if path.startswith("/api/"):
            found[method, path.rpartition("/")[2]] = answer.status_code if answer else None
        return answer

    monkeypatch.setattr(Access, "refusal", told)
    return found


async def test_a_foreign_page_reads_nothing_and_does_nothing(
    page: Page, foreign: str, log: Log, refused: dict[tuple[str, str], int | None]
) -> None:
    session = await talk(log)
    origin = await page.evaluate("location.origin")
    assert await page.evaluate(OURS, [session]) == 201
    elsewhere = await page.context.new_page()
    await page.close()
    refused.clear()
    await elsewhere.goto(foreign)
    await expect(elsewhere).to_have_title("foreign")
    assert await elsewhere.evaluate(ATTEMPTS, [origin, session]) == ""
    assert await log.look_up("made") is not None
    assert await log.look_up("stolen") is None
    asked = {("GET", "sessions"), ("GET", "export"), ("POST", "forks"), ("OPTIONS", "forks")}
    assert refused == dict.fromkeys(asked, 403)
