"""What the page reads: sessions, windows of their timeline, events, states, differences."""

import re
from itertools import zip_longest
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flightlog import StoreUnavailable
from flightlog.cache import catalog, floor
from flightlog.cache.catalog import Cursor, Row
from flightlog.state import SessionState
from flightlog_recorder.inspect import family
from flightlog_recorder.inspect.overview import undecided
from flightlog_recorder.inspector import asked, parts, timeline, whole
from flightlog_recorder.inspector import window as windows
from flightlog_recorder.inspector.asked import BadRequest, answer
from flightlog_recorder.inspector.desk import Desk
from flightlog_recorder.replay import choice, effects, picture, request, summary
from flightlog_recorder.replay.request import Proved
from flightlog_recorder.replay.tape import Test
from flightlog_recorder.replay.words import Words

PAGE = 100  # sessions
MOST_ROWS = 500  # events of one window
LEAD = 64  # events before a window that tell what is under way in it
MOST_MARKED = 200_000  # events that are read to mark the way through a session
MOST_WORDS = 200  # characters that are searched for

ABOUT = ("key", "status", "labels", "model")  # of a session, where the catalog has no row
LABEL = "label."  # before a label's name in a query


class Api:
    """Answers about one tenant's log."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._log = desk, desk.log

    def routes(self) -> list[Route]:
        """Every page of it."""
        of_session = "/api/sessions/{session}"
        pages = {
            "/api/sessions": self.sessions,
            of_session: self.session,
            f"{of_session}/events": self.events,
            f"{of_session}/events/{{seq:int}}": self.event,
            f"{of_session}/events/{{seq:int}}/text": self.text,
            f"{of_session}/states/{{seq:int}}": self.state,
            f"{of_session}/states/{{seq:int}}/part": self.state_part,
            f"{of_session}/states/{{seq:int}}/text": self.state_text,
            f"{of_session}/changes/{{seq:int}}": self.changes,
            f"{of_session}/requests/{{seq:int}}": self.request,
            f"{of_session}/requests/{{seq:int}}/text": self.request_text,
            f"{of_session}/marks": self.marks,
            f"{of_session}/find": self.find,
            f"{of_session}/effects": self.effects,
            f"{of_session}/family": self.family,
        }
        return [Route(path, asked.told(handler)) for path, handler in pages.items()]

    async def sessions(self, http: Request) -> Response:
        """A page of the catalog."""
        query = http.query_params
        labels = {n.removeprefix(LABEL): v for n, v in query.items() if n.startswith(LABEL)}
        page = await self._log.sessions(
            status=_word(query.get("status"), catalog.STATUSES),
            waiting=_word(query.get("waiting"), catalog.WAITING),
            labels=labels,
            key_prefix=query.get("key") or None,
            parent=query.get("parent") or None,
            fork_of=query.get("fork_of") or None,
            damaged=True if query.get("damaged") else None,
            stalled=True if query.get("stalled") else None,
            after=_cursor(query.get("after")),
            limit=asked.number(query, "limit", PAGE, least=1, most=1_000),
        )
        store = self._log.store
        building = await floor.rebuilding(store, self._log.bus.layout.streams) if store else []
        return answer(
            {
                "tenant": self._log.tenant,
                "sessions": [_row(row) for row in page.rows],
                "after": page.after and f"{page.after.activity}.{page.after.session}",
                "partial": page.partial,
                "rebuilding": building,
            }
        )

    async def session(self, http: Request) -> Response:
        """Where the session's log ends, and what the catalog knows of it; reads some events."""
        session = asked.session(http)
        head = await windows.tip(self._log, session)
        row = await self._known(session)
        return answer({"session": session, "last": head.seq, "row": row and _row(row)})

    async def _known(self, session: str) -> Row | None:
        """The catalog's row; a session is looked at without one as well."""
        if self._log.store is None:
            return None
        try:
            return await self._log.store.row(self._log.tenant, session)
        except StoreUnavailable:
            return None

    async def events(self, http: Request) -> Response:
        """A window of the timeline; reads what it shows and a little before it."""
        session, query = asked.session(http), http.query_params
        first = asked.number(query, "first", 1, least=1, most=asked.MOST_SEQ)
        last = asked.number(query, "last", first + 99, least=first, most=first + MOST_ROWS - 1)
        found = await windows.window(self._log, session, max(1, first - LEAD), last)
        rows = timeline.rows(found.events, first=first)
        return answer({"rows": rows, "damage": found.damage})

    async def event(self, http: Request) -> Response:
        """One event; long texts are cut."""
        event = await self._desk.event(asked.session(http), asked.seq(http))
        about = {
            name: getattr(event, name)
            for name in ("seq", "ts", "type", "parent_seq", "harness_version", "prev", "digest")
        }
        shown = parts.parts(picture.opened(event.raw))
        return answer({"event": about, "size": len(event.body), "payload": shown})

    async def text(self, http: Request) -> Response:
        """All of a text in a payload, or all of the payload, with what lies in blobs in place."""
        session = asked.session(http)
        event = await self._desk.event(session, asked.seq(http))
        return await self._text(http, session, event.raw)

    async def state(self, http: Request) -> Response:
        """The state after an event."""
        session, seq = asked.session(http), asked.seq(http)
        async with self._desk.tape(session, at=seq) as tape:
            after = await tape.state(seq)
        state = after.state
        return answer(
            {
                "seq": seq,
                "headline": summary.headline(state),
                "status": state.status,
                "about": {name: getattr(state, name) for name in ABOUT},
                "stored": after.stored,
                "applied": len(after.applied),
                "lines": summary.lines(state),
                "context": _context(state),
                "rest": parts.parts(picture.apart(state)),
                "undecided": [_call(call) for call in undecided(state)],
            }
        )

    async def state_part(self, http: Request) -> Response:
        """A part of the state after an event, as lines; long texts are cut."""
        value = await self._picture(asked.session(http), asked.seq(http))
        return answer(parts.parts(parts.part(value, asked.path(http.query_params))))

    async def state_text(self, http: Request) -> Response:
        """All of a part of the state after an event, with what lies in blobs in place."""
        session = asked.session(http)
        return await self._text(http, session, await self._picture(session, asked.seq(http)))

    async def _picture(self, session: str, seq: int) -> dict[str, Any]:
        async with self._desk.tape(session, at=seq) as tape:
            return picture.picture((await tape.state(seq)).state)

    async def _text(self, http: Request, session: str, value: Any) -> Response:
        path = asked.path(http.query_params)
        return asked.plain(await whole.text(self._log, session, value, path))

    async def changes(self, http: Request) -> Response:
        """What an event changed; right behind a snapshot this takes longer than the state."""
        session, seq = asked.session(http), asked.seq(http)
        async with self._desk.tape(session, at=seq) as tape:
            before, after = await tape.state(max(0, seq - 1)), await tape.state(seq)
        found = picture.changes(before.state, after.state)
        return answer({"seq": seq, "changes": parts.changes(found)})

    async def request(self, http: Request) -> Response:
        """The exact request that a model was sent, proved by its digest."""
        found = await self._proved(asked.session(http), asked.seq(http))
        about = {"upto": found.upto, "digest": found.digest, "exact": found.exact}
        return answer({**about, "request": parts.parts(found.request)})

    async def request_text(self, http: Request) -> Response:
        """All of a part of that request."""
        session = asked.session(http)
        found = await self._proved(session, asked.seq(http))
        return await self._text(http, session, found.request)

    async def _proved(self, session: str, seq: int) -> Proved:
        async with self._desk.tape(session, at=seq) as tape:
            return await request.proved(tape, seq)

    async def marks(self, http: Request) -> Response:
        """Where to look; reads all of the log, so not of one that is very long."""
        session = asked.session(http)
        last = (await windows.tip(self._log, session)).seq
        if last > MOST_MARKED:
            return answer({"marks": [], "last": last, "whole": False})
        found = await self._desk.marks(session, last)
        return answer({"marks": found.marks, "last": found.last, "whole": True})

    async def find(self, http: Request) -> Response:
        """The next, or last, event that is asked for, as seen from an event; null without one."""
        session, query = asked.session(http), http.query_params
        start = asked.number(query, "from", 0, least=0, most=asked.MOST_SEQ)
        words = Words(_literally(query.get("words", "")), self._log.whole)
        test = _test(query.get("what", ""), query.get("words", ""), words)
        async with self._desk.tape(session) as tape:
            await tape.grow()
            search = tape.previous if query.get("back") else tape.next
            return answer({"seq": await search(start, test), "why": words.told})

    async def effects(self, http: Request) -> Response:
        """What was done outside behind an event: no fork undoes it."""
        session = asked.session(http)
        after = asked.number(http.query_params, "after", 0, least=0, most=asked.MOST_SEQ)
        async with self._desk.tape(session) as tape:
            await tape.grow()
            found = await effects.effects(tape.events, after=after)
        return answer({"count": found.count, "told": effects.told(found, after=after)})

    async def family(self, http: Request) -> Response:
        """Where the session comes from and what came of it, as far as the catalog tells."""
        return answer(await family.of(self._log, asked.session(http)))


def _row(row: Row) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(row)
    del fields["tenant"]
    return fields | {"trouble": row.trouble}


def _call(call: Any) -> dict[str, Any]:
    names = ("name", "call_id", "announced_by", "seq", "question", "attempt")
    about = {name: getattr(call, name) for name in names}
    path = ["calls", picture.named(call), "arguments"]
    shown = parts.parts(picture.opened(call.arguments), most=40)
    return {**about, "arguments": shown, "path": path}


def _context(state: SessionState) -> list[dict[str, Any]]:
    """The context's messages, latest first, each with the way to all of it, if it is told."""
    paths = [("entries", at) for at in reversed(range(len(state.entries)))][: summary.TOLD]
    lines = summary.context(state)
    return [{"text": line.strip(), "path": path} for line, path in zip_longest(lines, paths)]


def _word(text: str | None, words: tuple[str, ...]) -> str | None:
    if text and text not in words:
        raise BadRequest(f"one of {', '.join(words)}")
    return text or None


def _cursor(text: str | None) -> Cursor | None:
    if not text:
        return None
    activity, _, session = text.partition(".")
    if not (activity.isascii() and activity.isdigit()) or not session:
        raise BadRequest("after takes what an earlier page named")
    return Cursor(int(activity), session)


def _literally(words: str) -> re.Pattern[str]:
    """The words as a pattern; one of the asker's own could run for ever."""
    return re.compile(re.escape(words), re.IGNORECASE)


def _test(what: str, asked_for: str, words: Words) -> Test:
    match what:
        case "error":
            return choice.is_error
        case "tool":
            return choice.is_tool_call
        case "turn":
            return lambda event: event.type in timeline.TURNS
        case "words" if 0 < len(asked_for) <= MOST_WORDS:
            return words.found
        case _:
            raise BadRequest("what is error, tool, turn, or words with some words")
