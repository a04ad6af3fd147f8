"""What the recorder tells over HTTP: `/startupz`, `/livez`, `/readyz`, `/metrics`."""

import contextlib
import socket
from collections.abc import Callable, Generator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from flightlog_recorder.service.metrics import Metrics

Why = Callable[[], str | None]


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service stops itself, in its own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def application(metrics: Metrics, *, why_dead: Why, why_unready: Why) -> Starlette:
    """The pages; the two functions tell what is wrong, or None."""

    async def startupz(_: Request) -> Response:
        return _verdict(None)  # it listens only once it has found the streams

    async def livez(_: Request) -> Response:
        return _verdict(why_dead())

    async def readyz(_: Request) -> Response:
        return _verdict(why_unready())

    async def counters(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    pages = {"/startupz": startupz, "/livez": livez, "/readyz": readyz, "/metrics": counters}
    return Starlette(routes=[Route(path, page) for path, page in pages.items()])


def server(app: Starlette) -> uvicorn.Server:
    """A server for the pages, to be run beside the service."""
    return _Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))


def listen(host: str, port: int) -> socket.socket:
    """Bind the port before anything else is started; raises OSError when it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _verdict(why: str | None) -> Response:
    return PlainTextResponse(why or "ok", status_code=503 if why else 200)
