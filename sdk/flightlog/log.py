"""The log of one tenant: where sessions are opened, read, listed and spoken to."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from signal import Signals
from typing import Any

from msgspec import Raw

from flightlog import environment, usage
from flightlog import fork as forking
from flightlog.blobs.blob import Blobs
from flightlog.blobs.spill import SPILLS, Limits
from flightlog.bus.notices import Start
from flightlog.bus.protocol import Connection, Heard, Message
from flightlog.cache.catalog import Cursor, Filter, Page, Row
from flightlog.cache.recall import Cache
from flightlog.cache.store import Store
from flightlog.door import OPEN_DEADLINE, Door, OnLive
from flightlog.errors import (
    FlightlogError,
    NoSuchSession,
    SessionPurged,
)
from flightlog.event import Event
from flightlog.fork import Point
from flightlog.past import Past
from flightlog.reading.reader import Folded
from flightlog.running import inbox, opening, requesting
from flightlog.running.inbox import Item
from flightlog.running.journal import OnEvent
from flightlog.running.opening import Wanted
from flightlog.running.stopping import SIGNALS
from flightlog.session import Session
from flightlog.state import SessionState
from flightlog.subscribing.subscription import AHEAD, ATTEMPTS, Interest, Subscription, Where
from flightlog.tool import Tools, policies_of
from flightlog.usage import Usage
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.carry import Redact
from flightlog.wire.chunk import Blob
from flightlog.writing import keys
from flightlog.writing.holding import Holding

CHUNKS = 1_000  # of progress that wait for whoever displays them


class Log:
    """A connection to one tenant's log. Made by `connect`; safe to share between tasks."""

    def __init__(
        self,
        bus: Connection,
        store: Store | None,
        tenant: str,
        redact: Redact | None,
        *,
        limits: Limits = SPILLS,
    ) -> None:
        self.bus, self.store, self.tenant = bus, store, tenant
        self._redact, self._limits = redact, limits
        self._cache = Cache(store, tenant)
        self.past = Past(bus, self._cache, tenant)
        self._door = Door(bus, self._cache, tenant, redact, limits)
        self._ears: Connection | None = None
        self._hearing = asyncio.Lock()  # two that begin to watch at once share one connection

    @asynccontextmanager
    async def session(
        self,
        *,
        key: str | None = None,
        id: str | None = None,
        harness_version: str = "",
        compatible: Collection[str] | None = None,
        labels: Mapping[str, str] | None = None,
        tools: Tools = (),
        on_live: OnLive = "takeover",
        gone: str | None = None,
        reopen: bool = False,
        on_event: OnEvent | None = None,
        signals: Iterable[Signals] = SIGNALS,
        deadline: float = OPEN_DEADLINE,
    ) -> AsyncGenerator[Session]:
        """Start or resume a session and own it until the block is left.

        `key` is any text and stands for one session for ever; `id` opens an existing one and never
        creates; neither takes `FLIGHTLOG_SESSION_KEY`, else a new session. `labels` are added to
        those of `FLIGHTLOG_LABELS` (`name=value,name=value`) and come before them. Opening appends
        one event, which fences every older writer; with `on_live="refuse"` a live one raises
        `SessionLive` instead, and with `gone` so does the session of any writer whose id does not
        begin like that: those that do are known to have ended, so their beats are not waited for.
        `tools` declares policies by name. `compatible` are the other
        versions of this harness whose sessions it can resume: any further one raises
        `VersionRefused`.
        `on_event` sees each event that is appended live, never a restored one.

        SIGTERM and Ctrl-C (`signals`, where nobody else handles them) stop the work, leave its
        calls in flight, record session_suspended within 5 s, leave the block by `SystemExit(0)` or
        `KeyboardInterrupt`; a second one ends the process at once.

        Raises `NoSuchSession`, `SessionPurged`, `Fenced` (another resumer was faster: do not
        retry), `LogCorrupt`, `BusUnavailable`.
        """
        if key is None and id is None:
            key = environment.session_key()
        wanted = Wanted(
            tenant=self.tenant,
            id="",
            made_by=None,
            key=key,
            labels=environment.labels() | dict(labels or {}),
            policies=policies_of(tools),
            harness_version=harness_version,
            reopen=reopen,
            compatible=None if compatible is None else frozenset(compatible),
        )
        entering = self._door.enter(
            *(wanted, on_event),
            id=id,
            on_live=on_live,
            gone=gone,
            signals=frozenset(signals),
            deadline=deadline,
        )
        async with entering as session:
            yield session

    def read(self, id: str, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        """Yield a session's events in order, from seq `after` + 1 to `until`; memory is one page.

        Nothing is executed and nobody is notified. From `after` on it is read as a resume does,
        from the nearest snapshot; `LogCorrupt` is raised after the last good event.
        """
        session = names.token("session id", id)
        return self.past.read(session, after=after, until=until)

    async def fold(self, id: str, *, at: int | None = None) -> Folded[SessionState]:
        """Fold a session from the nearest snapshot (or up to seq `at`); where its log stood."""
        session = names.token("session id", id)
        folded = await self.past.fold(session, at=at)
        if folded.presence == "purged":
            raise SessionPurged(session)
        if folded.presence != "present":
            raise NoSuchSession(session)
        return folded

    async def state(self, id: str, *, at: int | None = None) -> SessionState:
        """The session's state now, or after the event with seq `at`. Appends nothing."""
        folded = await self.fold(id, at=at)
        return await self._holding(id).fetch(folded.state)

    def _holding(self, session: str) -> Holding:
        return Holding(Blobs(self.bus, self.tenant, session, deadline=None), self._limits)

    async def payload(self, event: Event) -> Any:
        """An event's payload as Python values, with what lies in blobs in its place.

        What was attached stays a `Blob`, for `blob`. Raises `BlobMissing` and `BlobCorrupt`.
        """
        return carry.unpack(await self.whole(event))

    async def whole(self, event: Event) -> Raw:
        """An event's payload as JSON, with what lies in blobs in its place."""
        return await self.filled(event.session_id, event.raw)

    async def filled(self, id: str, raw: Raw) -> Raw:
        """JSON of a session's events or state, with what of it lies in blobs in its place.

        What was attached stays a reference. Raises `BlobMissing` and `BlobCorrupt`.
        """
        return await self._holding(names.token("session id", id)).whole(raw)

    async def blob(self, id: str, blob: Blob) -> AsyncIterator[bytes]:
        """Yield what a session keeps as this blob, piece by piece; memory is a few of them.

        Each piece is verified before it is handed on; that they are all of it is known at the end.
        Raises `BlobMissing`, also for a blob of another session, and `BlobCorrupt`.
        """
        blobs = Blobs(self.bus, self.tenant, names.token("session id", id))
        async for piece in blobs.chunks(blob):
            yield piece

    async def fork(
        self,
        id: str,
        *,
        at: int | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Make a new session of the first `at` events (all, by default) and return its id.

        The two never change each other. What the source did outside is not undone; calls that are
        open at that point are in flight in the fork. All or nothing: a crash leaves nothing to be
        seen, and with the same `key` a second run takes over, or returns what the first one made.
        Raises `NoSuchSession`, `SessionPurged`, `KeyTaken`, `InvalidValue` (an event that is not
        there, or what `session` refuses of a key and labels), `LogCorrupt` for a damage before it,
        `BusUnavailable` (run it again) and `LogFull`.
        """
        opening.check(key, None, labels or {}, "")
        point = Point(names.token("session id", id), at)
        newest = await self._cache.head(point.session)
        return await forking.fork(
            self.bus, self.tenant, point, newest=newest, key=key, labels=labels
        )

    async def sessions(
        self,
        *,
        status: str | None = None,
        waiting: str | None = None,
        labels: Mapping[str, str] | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        job: str | None = None,
        parent: str | None = None,
        fork_of: str | None = None,
        damaged: bool | None = None,
        stalled: bool | None = None,
        after: Cursor | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of the catalog, latest activity first; reads no log.

        With `parent`, the sessions that the calls of that session have opened; with `fork_of`, its
        forks; with `job`, those of that key and of all keys under it (`job/...`); with `damaged`,
        those whose log the recorder or the projector found broken; with `stalled`, those that run
        and of which nothing is heard.
        The catalog follows the log within about 2 s. Raises `StoreUnavailable` without Redis.
        """
        if self.store is None:
            raise FlightlogError("listing sessions needs the catalog: give connect() a redis URL")
        wanted = Filter(
            status=status,
            waiting=waiting,
            labels=labels or {},
            key=key,
            key_prefix=key_prefix,
            job=job,
            parent=parent,
            fork_of=fork_of,
            damaged=damaged,
            stalled=stalled,
        )
        return await self.store.rows(self.tenant, wanted, before=after, limit=limit)

    async def usage(self, id: str) -> Usage:
        """Tokens of the session and of all its children, and theirs.

        Its own are those of the log; its children's follow within about 2 s, as the catalog does.
        """
        total, seen, waiting = (await self.state(id)).usage, {id}, [id]
        while waiting:
            async for row in self._children(waiting.pop()):
                if row.session not in seen:
                    seen.add(row.session)
                    waiting.append(row.session)
                    total += usage.counted(row.usage, row.cost)
        return total

    async def _children(self, parent: str) -> AsyncIterator[Row]:
        after: Cursor | None = None
        while True:
            page = await self.sessions(parent=parent, after=after)
            for row in page.rows:
                yield row
            if (after := page.after) is None:
                return

    async def look_up(self, key: str) -> str | None:
        """The id of the session that the key stands for, or None; may lag behind a new one."""
        entry = await keys.look_up(self.bus, self.tenant, key)
        return entry.id if entry else None

    async def send(self, id: str, item: Item, *, message_id: str | None = None) -> int:
        """Put an item into a session's inbox; its writer records it. Idempotent per `message_id`.

        Returns its stream sequence. Raises `TooLarge`, and `BusUnavailable`: sending again
        with the same `message_id` is safe then.
        """
        session = names.token("session id", id)
        told = inbox.redacted(item, self._redact)
        sequence = await inbox.send(self.bus, self.tenant, session, told, id=message_id)
        if (here := self._door.inside(session)) is not None:
            here.listener.expect_item(sequence)  # our own connection does not hear what it sends
        return sequence

    async def say(self, id: str, content: Any, *, message_id: str | None = None) -> int:
        """Send a user message to a session that another process writes."""
        return await self.send(
            id, inbox.Say(content=carry.pack(content, where="content")), message_id=message_id
        )

    @asynccontextmanager
    async def watch(self, id: str) -> "AsyncGenerator[asyncio.Queue[Message]]":
        """Bodies appended to the session from now on: live hints, at most once, for display."""
        heard: asyncio.Queue[Message] = asyncio.Queue()
        session = names.token("session id", id)
        subject = names.live_filter(self.tenant, session, prefix=self.bus.layout.prefix)
        async with self._listening(subject, heard.put):
            yield heard

    @asynccontextmanager
    async def progress(self, id: str) -> "AsyncGenerator[asyncio.Queue[Any]]":
        """What `Session.progress` says of the session from now on: at most once, for display.

        Nothing of it is kept; of more than 1,000 chunks that wait the newest are dropped.
        """
        chunks: asyncio.Queue[Any] = asyncio.Queue(CHUNKS)

        async def took(message: Message) -> None:
            if (chunk := requesting.read_progress(message.body)) is not None and not chunks.full():
                chunks.put_nowait(chunk)

        session = names.token("session id", id)
        subject = names.progress_subject(self.tenant, session, prefix=self.bus.layout.prefix)
        async with self._listening(subject, took):
            yield chunks

    @asynccontextmanager
    async def _listening(self, subject: str, heard: Heard) -> AsyncGenerator[None]:
        async with self._hearing:
            self._ears = self._ears or await self.bus.twin(echo=True)
        listening = await self._ears.listen(subject, heard)
        try:
            yield
        finally:
            await listening.close()

    def subscribe(
        self,
        name: str,
        *,
        types: Collection[str] | None = None,
        where: Where | None = None,
        start: Start = "new",
        attempts: int | None = ATTEMPTS,
        ahead: int = AHEAD,
    ) -> Subscription:
        """The tenant's live events and notices from now on, each at least once, in no fixed order.

        Durable under `name`, which any number of processes share: what none of them has settled
        comes again, whatever crashed. A replay, a fork or an import never comes. `types` are told
        from the header, without reading bodies; `where` decides by the event. `start` counts when
        the name is new: "new", "all" or a time. An event that is not settled in `attempts`
        deliveries is a dead letter. Up to `ahead` events of each stream wait here for their turn.
        Purges wait for the name until `flightlog subscribe --remove --name NAME`.
        """
        return Subscription(
            self.bus,
            self.tenant,
            Interest(
                name=name,
                types=types,
                where=where,
                start=start,
                attempts=attempts,
                ahead=ahead,
            ),
        )

    async def close(self) -> None:
        """Close the connections; sessions must be left before."""
        await self._door.close()
        if self._ears is not None:
            await self._ears.close()
        if self.store is not None:
            await self.store.close()
        await self.bus.close()
