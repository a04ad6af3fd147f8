"""Who may look: this machine, by its own name, with the token, from our own page."""

from collections.abc import AsyncIterator

import pytest

import flightlog
from flightlog_recorder.embedded import Servers
from flightlog_recorder.inspector.access import Access
from flightlog_recorder.inspector.serving import CannotServe, Where
from tests.recorder.command import flightlog as command
from tests.recorder.inspected import Client, inspected
from tests.scripted import TENANT


@pytest.fixture
async def client(servers: Servers) -> AsyncIterator[Client]:
    connecting = flightlog.connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT)
    async with connecting as log, inspected(log) as client:
        yield client


async def test_without_the_token_nothing_of_the_log_is_told(client: Client) -> None:
    for path in ("/api/sessions", "/api/sessions/sess_1", "/api/sessions/sess_1/export"):
        assert (await client.get(path, authorization=None)).status == 401
        assert (await client.get(path, authorization="Bearer no")).status == 401
        assert (await client.get(path, authorization=None, cookie="flightlog=1")).status == 401
    assert (await client.get("/api/sessions")).status == 200


async def test_the_token_is_exchanged_for_a_cookie_that_scripts_and_foreign_pages_lack(
    client: Client,
) -> None:
    wrong = await client.post("/api/enter", {}, authorization=None, flightlog_token="guess")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    entered = await client.post("/api/enter", {}, authorization=None, flightlog_token=client.token)
    cookie = entered.headers["set-cookie"]
    assert entered.status == 204
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.token not in cookie
    name = cookie.partition(";")[0]
    assert (await client.get("/api/sessions", authorization=None, cookie=name)).status == 200


async def test_a_name_that_was_rebound_to_this_machine_is_refused(client: Client) -> None:
    for host in ("evil.example", f"evil.example:{client.port}", "127.0.0.1", None):
        assert (await client.get("/", host=host)).status in (400, 421)
        assert (await client.get("/api/sessions", host=host)).status in (400, 421)
    assert (await client.get("/", host=f"localhost:{client.port}")).status == 200


async def test_a_foreign_page_can_neither_read_nor_write(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        assert (await client.get("/api/sessions", sec_fetch_site=site)).status == 403
    for path in ("decisions", "forks"):
        refused = await client.post(f"/api/sessions/sess_1/{path}", {}, flightlog_write=None)
        assert refused.status == 403
        as_a_form = await client.post(f"/api/sessions/sess_1/{path}", {}, content_type="text/plain")
        assert as_a_form.status == 400
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{client.port + 1}"):
        assert (await client.post("/api/sessions/sess_1/forks", {}, origin=origin)).status == 403
        assert (await client.get("/api/sessions", origin=origin)).status == 403
    ours = f"http://127.0.0.1:{client.port}"
    assert (await client.get("/api/sessions", origin=ours)).status == 200
    asked_first = await client.ask("OPTIONS", "/api/sessions", b"", origin="https://evil.example")
    assert asked_first.status in (403, 405)
    assert "access-control-allow-origin" not in asked_first.headers


async def test_every_answer_forbids_what_a_hostile_text_would_need(client: Client) -> None:
    for path in ("/", "/static/app.js", "/static/nothing", "/api/sessions", "/api/nothing"):
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert (await client.get("/api/sessions")).headers["cache-control"] == "no-store"


async def test_files_beside_ours_are_not_served(client: Client) -> None:
    for path in ("/static/../access.py", "/static/%2e%2e/access.py", "/static//etc/passwd"):
        assert (await client.get(path)).status == 404


def test_more_than_this_machine_is_served_only_under_names_that_are_told() -> None:
    with pytest.raises(CannotServe, match="--allow-host"):
        Where(host="0.0.0.0").check()  # noqa: S104  what is refused
    with pytest.raises(CannotServe, match="less than 16"):
        Where(token="short").check()
    Where(host="0.0.0.0", names=("flightlog.example",)).check()  # noqa: S104  named
    Where(host="::1").check()
    access = Access(port=1, hosts=["Flightlog.example"])
    assert access.refusal("GET", "/", {"host": "flightlog.example"}) is None


async def test_the_command_prints_an_address_that_opens_the_page(
    servers: Servers, client: Client
) -> None:
    assert (await client.get("/")).status == 200
    async with command(servers).running("inspect", "--port", "0") as running:
        url = await running.line()
        address, _, token = url.partition("/#token=")
        other = Client(int(address.rpartition(":")[2]), token)
        assert b"<title>Flightlog" in (await other.get("/")).body
        assert (await other.get("/api/sessions")).json["tenant"] == TENANT
        assert (await client.get("/api/sessions", authorization=f"Bearer {token}")).status == 401
        assert await running.stop() == 0


async def test_the_command_refuses_to_listen_for_others_by_accident(servers: Servers) -> None:
    ran = await command(servers)("inspect", "--host", "0.0.0.0")  # noqa: S104  what is refused
    assert (ran.code, ran.out) == (2, "")
    assert "--allow-host" in ran.err
