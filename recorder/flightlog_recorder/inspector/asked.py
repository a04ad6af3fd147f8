"""What a request asks for, read with care; and answers that any text survives."""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from flightlog import (
    BusUnavailable,
    FlightlogError,
    InvalidName,
    InvalidValue,
    NoSuchSession,
    SessionPurged,
    StoreUnavailable,
)
from flightlog.defect import place
from flightlog.wire import subject as names
from flightlog_recorder.inspector.parts import NoSuchPart
from flightlog_recorder.replay.tape import NotThere

MOST_BODY = 1 << 20  # bytes of a request; a ruling's output is the largest there is
MOST_SEQ = 1 << 53  # what JavaScript counts exactly

Handler = Callable[[Request], Awaitable[Response]]


class BadRequest(FlightlogError):
    """The request cannot be meant; says what would be."""


class TooBig(BadRequest):
    """The request is larger than anything the page sends."""


def session(request: Request) -> str:
    """The session that the path names."""
    return names.token("session id", request.path_params["session"])


def seq(request: Request) -> int:
    """The seq that the path names."""
    return int(request.path_params["seq"])


def number(query: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    """A number in the query, brought into its bounds."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        raise BadRequest(f"{name} is a number")
    return max(least, min(int(text), most))


def path(query: Mapping[str, str]) -> list[str | int]:
    """The way to a part of a payload."""
    try:
        return msgspec.json.decode(query.get("path", "[]"), type=list[str | int])
    except (msgspec.MsgspecError, ValueError):
        raise BadRequest("path is a list of names and numbers") from None


async def body(request: Request, kind: type[Struct]) -> Any:
    """The request's JSON as the struct. Raises `BadRequest` and `TooBig`."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise BadRequest("what is sent is application/json")
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > MOST_BODY:
            raise TooBig("that is more than a megabyte")
    try:
        return msgspec.json.decode(bytes(read), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        why = str(exc) if isinstance(exc, msgspec.ValidationError) else "it is no JSON"
        raise BadRequest(why) from None


def answer(value: object, *, status: int = 200) -> Response:
    """Any value as JSON; lone surrogates and control characters as escapes."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=repr))
    return Response(text, status_code=status, media_type="application/json")


def plain(text: str) -> Response:
    """Text that nothing may take for a page."""
    content = text.encode("utf-8", "replace")
    return Response(content, media_type="text/plain; charset=utf-8")


def told(handler: Handler) -> Handler:
    """The handler with its errors told to the person at the page, never with a payload in them."""

    async def telling(request: Request) -> Response:
        try:
            return await handler(request)
        except (FlightlogError, NoSuchPart) as exc:
            return answer({"error": str(exc)}, status=status(exc))
        except Exception as exc:  # noqa: BLE001  its text may quote a payload
            return answer({"error": f"this is a bug ({place(exc)})"}, status=500)

    return telling


def status(exc: Exception) -> int:
    """The HTTP status of an error."""
    match exc:
        case TooBig():
            return 413
        case BadRequest() | InvalidName() | InvalidValue():
            return 400
        case NoSuchSession() | NotThere() | NoSuchPart():
            return 404
        case SessionPurged():
            return 410
        case BusUnavailable() | StoreUnavailable():
            return 503
        case _:
            return 409
