"""What the projector tells over HTTP: `/startupz`, `/livez`, `/readyz`, `/metrics`."""

import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from flightlog_projector.follower import Follower
from flightlog_projector.metrics import Metrics

Ready = Callable[[], Awaitable[str | None]]


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service stops itself, in its own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def application(followers: Sequence[Follower], metrics: Metrics, unready: Ready) -> Starlette:
    """The pages. `unready` tells why no traffic should rely on this replica, or None."""

    async def startupz(_: Request) -> Response:
        return _verdict(
            [f"{each.stream}: no consumer yet" for each in followers if not each.opened]
        )

    async def livez(_: Request) -> Response:
        now = time.monotonic()
        found = {each.stream: each.progress.why_dead(now) for each in followers}
        return _verdict([f"{stream}: {why}" for stream, why in found.items() if why])

    async def readyz(_: Request) -> Response:
        why = await unready()
        return _verdict([why] if why else [])

    async def counters(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    pages = {"/startupz": startupz, "/livez": livez, "/readyz": readyz, "/metrics": counters}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])


def server(app: Starlette) -> uvicorn.Server:
    """A server for the pages, to be run beside the service."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    return _Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Bind the port before anything else is started; raises OSError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _verdict(reasons: list[str]) -> Response:
    return PlainTextResponse("\n".join(reasons) or "ok", status_code=503 if reasons else 200)
