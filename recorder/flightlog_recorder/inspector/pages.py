"""The application: the page and its files, the API, and who may use them."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from flightlog_recorder.inspector.access import ENTER, Access, Guard
from flightlog_recorder.inspector.acts import Acts
from flightlog_recorder.inspector.api import Api
from flightlog_recorder.inspector.asked import answer
from flightlog_recorder.inspector.desk import Desk
from flightlog_recorder.inspector.stream import Live

STATIC = Path(__file__).with_name("static")


def application(desk: Desk, live: Live, access: Access) -> ASGIApp:
    """All of it, guarded."""

    async def page(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    async def enter(request: Request) -> Response:
        return access.enter(request)

    async def nothing(_: Request) -> Response:
        return answer({"error": "there is no such page"}, status=404)

    routes = [
        Route("/", page),
        Route("/sessions/{session}", page),
        Route("/sessions/{session}/{seq:int}", page),
        Route(ENTER, enter, methods=["POST"]),
        *Api(desk).routes(),
        *Acts(desk).routes(),
        *live.routes(),
        Mount("/static", _Files(directory=STATIC)),
        Route("/{rest:path}", nothing, methods=["GET", "POST"]),
    ]
    return Guard(Starlette(routes=routes), access)


class _Files(StaticFiles):
    """Our own files; a browser asks each time whether they are still the same."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response
