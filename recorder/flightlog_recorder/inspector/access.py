"""Who may look: this machine, with the token, from our own page. ASGI, in front of everything."""

import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

WRITE = "flightlog-write"  # a header that no foreign page can send without being asked first
TOKEN = "flightlog-token"  # noqa: S105  the name of a header
ENTER = "/api/enter"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
LEAST_TOKEN = 16  # characters of a token that somebody chose

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """The token, what it is exchanged for, and the names under which we are served."""

    def __init__(self, *, port: int, hosts: Iterable[str] = (), token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._pass = secrets.token_urlsafe(32)
        self._hosts = {f"{name}:{port}" for name in LOOPBACK_NAMES} | {h.lower() for h in hosts}
        self.cookie = f"flightlog-{port}"  # cookies do not keep ports apart

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Response | None:
        """Why the request is not answered, or None."""
        if headers.get("host", "").lower() not in self._hosts:
            return _no(421, "this name is not one that the inspector is served under")
        if not path.startswith("/api/"):
            return None
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _no(403, "another page may not ask")
        if not self._is_ours(headers.get("origin")):
            return _no(403, "a page from elsewhere may not ask")
        if method not in ("GET", "HEAD") and headers.get(WRITE) != "1":
            return _no(403, f"this needs the header {WRITE}")
        if path != ENTER and not self._knows(headers):
            return _no(401, "open the address that flightlog inspect printed: it holds the token")
        return None

    def enter(self, request: Request) -> Response:
        """Exchange the token for a cookie that no script can read and no foreign page sends."""
        if not _same(request.headers.get(TOKEN, ""), self.token):
            return _no(401, "this is not the token; flightlog inspect prints the address anew")
        answer = Response(status_code=204)
        answer.set_cookie(self.cookie, self._pass, httponly=True, samesite="strict", path="/")
        return answer

    def _is_ours(self, origin: str | None) -> bool:
        """Whether the page that asks, if a browser names it, came from us."""
        return origin is None or origin.partition("://")[2].lower() in self._hosts

    def _knows(self, headers: Mapping[str, str]) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookies = Request({"type": "http", "headers": _raw(headers)}).cookies
        return _same(cookies.get(self.cookie, ""), self._pass) or _same(bearer, self.token)


class Guard:
    """Asks `Access` before each request, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no page of ours opens a websocket
        refusal = self._access.refusal(scope["method"], scope["path"], Headers(scope=scope))

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (refusal or self._app)(scope, receive, sealed)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(b"cookie", headers.get("cookie", "").encode("latin-1"))]


def _no(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status_code=status)
