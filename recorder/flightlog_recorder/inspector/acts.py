"""What the page does: answers a decision, forks a session, hands out a copy of its log."""

import tempfile
from collections.abc import AsyncIterator
from typing import IO, Any, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from flightlog import FlightlogError
from flightlog.running import inbox
from flightlog_recorder.inspect.copy import copy
from flightlog_recorder.inspect.overview import undecided
from flightlog_recorder.inspector import asked
from flightlog_recorder.inspector.asked import BadRequest, answer
from flightlog_recorder.inspector.desk import Desk

CHUNK = 1 << 18  # bytes of a file that are sent at once
IN_MEMORY = 4 << 20  # bytes of an export before it goes to disk


class NotWaiting(FlightlogError):
    """The call does not wait for a person; nothing was sent."""

    def __init__(self, session: str) -> None:
        super().__init__(f"no such call of session {session} waits for a decision any more")


class Ruling(Struct, frozen=True, kw_only=True):
    """A person's answer, as the page sends it."""

    call_id: str
    announced_by: int | None = None
    ruling: Literal["result", "rerun", "fail"]
    output: Any = None
    by: str = ""
    reason: str = ""


class Fork(Struct, frozen=True, kw_only=True):
    """A fork, as the page asks for it."""

    at: int
    key: str | None = None
    labels: dict[str, str] = {}


class Acts:
    """Writes to inboxes and makes forks; it never becomes a session's writer."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._log = desk, desk.log

    def routes(self) -> list[Route]:
        """Every act of it."""
        of_session = "/api/sessions/{session}"
        return [
            Route(f"{of_session}/decisions", asked.told(self.decide), methods=["POST"]),
            Route(f"{of_session}/forks", asked.told(self.fork), methods=["POST"]),
            Route(f"{of_session}/export", asked.told(self.export)),
        ]

    async def decide(self, http: Request) -> Response:
        """Send a ruling on a call that waits for a person; its writer takes it."""
        session, given = asked.session(http), await asked.body(http, Ruling)
        if not given.reason.strip():
            raise BadRequest("say why, for the log")
        state = await self._desk.now(session)
        wanted = (given.announced_by, given.call_id)
        if wanted not in {(call.announced_by, call.call_id) for call in undecided(state)}:
            raise NotWaiting(session)
        decision = inbox.decision(
            given.call_id,
            announced_by=given.announced_by,
            ruling=given.ruling,
            output=given.output if given.ruling == "result" else None,
            by=given.by.strip() or "a person at the inspector",
            reason=given.reason,
        )
        return answer({"inbox": await self._log.send(session, decision)}, status=202)

    async def fork(self, http: Request) -> Response:
        """Make a session of the first events of another."""
        session, wanted = asked.session(http), await asked.body(http, Fork)
        made = await self._log.fork(
            session, at=wanted.at, key=wanted.key or None, labels=wanted.labels
        )
        return answer({"session": made, "source": session, "at": wanted.at}, status=201)

    async def export(self, http: Request) -> Response:
        """The session's events, one a line, as they are stored; all of them or an error."""
        session = asked.session(http)
        file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  sent later
        try:
            await copy(self._log.bus, self._log.tenant, session, file)
        except BaseException:
            file.close()
            raise
        size = file.tell()
        file.seek(0)
        headers = {
            "Content-Disposition": f'attachment; filename="{session}.jsonl"',
            "Content-Length": str(size),
        }
        return StreamingResponse(_sent(file), media_type="application/x-ndjson", headers=headers)


async def _sent(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
