"""A session as it goes on: server-sent events that say where its log ends now."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from flightlog import BusUnavailable, FlightlogError, Log, StoreUnavailable
from flightlog.bus.protocol import Message
from flightlog.reading.chain import Head
from flightlog_recorder.inspect.telling import said
from flightlog_recorder.inspector import asked
from flightlog_recorder.inspector import window as windows
from flightlog_recorder.replay.source import Damage, Rewound

LOOK_FIRST, LOOK_MOST = 0.02, 1.0  # seconds between looks: a replica lags, a hint may be lost
PACE = 0.1  # seconds from one piece of progress to the next: a page shows the newest alone
ALIVE = 15.0  # seconds without news after which a line says that we are still there
ALONE = b": still here\n\n"
RETRY = 1_000  # milliseconds until the page asks again


class Live:
    """Streams that end when the page goes, or the inspector does."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stopping = asyncio.Event()
        self._entering = asyncio.Lock()  # the first to watch makes the connection for all

    def routes(self) -> list[Route]:
        """The one stream."""
        return [Route("/api/sessions/{session}/live", asked.told(self.live))]

    def stop(self) -> None:
        """End every stream."""
        self._stopping.set()

    async def live(self, http: Request) -> Response:
        """Say where the log ends, now and whenever that changes."""
        session = asked.session(http)
        head = await windows.tip(self._log, session)
        return StreamingResponse(self._told(session, head), media_type="text/event-stream")

    async def _told(self, session: str, head: Head) -> AsyncIterator[bytes]:
        yield f"retry: {RETRY}\n\n".encode() + _news({"last": head.seq})
        async with AsyncExitStack() as stack:
            async with self._entering:
                hints = await stack.enter_async_context(self._log.watch(session))
                chunks = await stack.enter_async_context(self._log.progress(session))
            quiet, stalled = 0.0, await self._stalled(session)
            if stalled is not None:
                yield _news({"last": head.seq, "stalled": stalled})
            while not self._stopping.is_set():
                heard = await self._heard(hints, chunks)
                if (chunk := _newest(chunks)) is not None:
                    yield _news({"last": head.seq, "progress": said(chunk)})
                    await asyncio.sleep(PACE)
                quiet += LOOK_MOST
                now, news = await self._looked(session, head, patiently=heard)
                if news is not None:
                    head, quiet = now, 0.0
                    yield _news(news)
                elif quiet >= ALIVE:
                    quiet, before, stalled = 0.0, stalled, await self._stalled(session)
                    same = stalled == before
                    yield ALONE if same else _news({"last": head.seq, "stalled": stalled})
                if news is not None and news.get("over"):
                    return

    async def _stalled(self, session: str) -> str | None:
        """Since when nothing was heard of the session, by the recorder's word."""
        if self._log.store is None:
            return None
        with contextlib.suppress(StoreUnavailable):
            row = await self._log.store.row(self._log.tenant, session)
            return row.stalled if row else None
        return None

    async def _looked(
        self, session: str, head: Head, *, patiently: bool
    ) -> tuple[Head, dict[str, object] | None]:
        """Where the log ends now, and what is to be told about it."""
        pause = LOOK_FIRST
        while True:
            try:
                now = await windows.behind(self._log, session, head)
            except Rewound:
                now = await windows.tip(self._log, session)
                return now, {"last": now.seq, "rewound": True}
            except (BusUnavailable, Damage) as exc:
                await asyncio.sleep(LOOK_MOST)
                return head, {"last": head.seq, "trouble": str(exc)}
            except FlightlogError as exc:
                return head, {"last": head.seq, "trouble": str(exc), "over": True}
            if now.seq != head.seq:
                return now, {"last": now.seq}
            if not patiently or pause > LOOK_MOST:
                return head, None
            await asyncio.sleep(pause)
            pause *= 2

    async def _heard(self, hints: "asyncio.Queue[Message]", chunks: "asyncio.Queue[Any]") -> bool:
        """Wait for a hint or progress, but not for ever: hints may be lost. Whether one came."""
        hint = asyncio.ensure_future(hints.get())
        chunk = asyncio.ensure_future(chunks.get())
        stop = asyncio.ensure_future(self._stopping.wait())
        waiting = (hint, chunk, stop)
        try:
            await asyncio.wait(waiting, timeout=LOOK_MOST, return_when=asyncio.FIRST_COMPLETED)
            while not hints.empty():
                hints.get_nowait()
            if chunk.done() and chunks.empty():
                chunks.put_nowait(chunk.result())
            return hint.done()
        finally:
            for each in waiting:
                each.cancel()


def _newest(chunks: "asyncio.Queue[Any]") -> Any:
    """The newest of what is there: a page that looks sees no more than that."""
    newest: Any = None
    while not chunks.empty():
        newest = chunks.get_nowait()
    return newest


def _news(value: object) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
