"""The one module that knows nats-py: a supervised connection that speaks the bus protocol."""

import asyncio
import base64
import contextlib
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from flightlog import answer, layout
from flightlog import subject as names
from flightlog.answer import Answer, Unclear
from flightlog.bus import Message, Outgoing, Page
from flightlog.errors import BusUnavailable, LayoutRefused, NotPermitted

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
PAGE_MESSAGES = 1_000
PAGE_BYTES = 1 << 20  # a page is what a reader holds in memory
REQUEST_TIMEOUT = 5.0  # seconds for one answer; deadlines above are made of several
CONNECT_TIMEOUT = 5.0
_PING_INTERVAL = 10  # seconds; nats-py's 120 takes minutes to notice a half-open link
_RECONNECT_WAIT = 0.2

_log = logging.getLogger("flightlog.bus")
Heard = Callable[[Message], Awaitable[None]]


class _Client(Client):
    """nats-py with a header parser that does not go one character at a time."""

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        if not headers:
            return None
        first, *lines = headers.decode("utf-8", "replace").split("\r\n")
        found = dict(line.split(": ", 1) for line in lines if ": " in line)
        status = first[9:12]
        return found | {"Status": status, "Description": first[13:]} if status else found


class _Listening:
    def __init__(self, bus: "NatsBus", subject: str, heard: Heard) -> None:
        self._bus, self.subject, self.heard = bus, subject, heard
        self.subscription: Subscription | None = None

    async def close(self) -> None:
        self._bus.listening.discard(self)
        if self.subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self.subscription.unsubscribe()


class NatsBus:
    """One connection to NATS; reconnects without end, and is rebuilt when nats-py closes it."""

    layout: layout.Layout

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._client: _Client | None = None
        self._rebuilding = asyncio.Lock()
        self._last_error: Exception | None = None
        self._denied = ""
        self.listening: set[_Listening] = set()
        self.closed = False

    @property
    def max_payload(self) -> int:
        """The largest body plus headers the server takes, in bytes."""
        return self._client.max_payload if self._client else 1 << 20

    @property
    def where(self) -> str:
        """The servers' addresses, without credentials: for messages."""
        return ", ".join(url.rsplit("@", 1)[-1] for url in self._options["servers"])

    @property
    def connected(self) -> bool:
        """Whether the link is up now."""
        return self._client is not None and self._client.is_connected

    async def open(self, timeout: float) -> None:
        """Connect, or raise `BusUnavailable` or `NotPermitted` within `timeout` seconds."""
        client = _Client()
        try:
            await asyncio.wait_for(
                client.connect(error_cb=self._on_error, **self._options), timeout
            )
        except (OSError, TimeoutError, nats.errors.Error) as exc:
            with contextlib.suppress(Exception):
                await client.close()
            raise self._unreachable(exc) from exc
        self._client = client
        for each in list(self.listening):
            await self._subscribe(client, each)

    def _unreachable(self, exc: Exception) -> Exception:
        reason = self._last_error or exc
        if "authorization" in str(reason).lower():
            return NotPermitted(f"NATS at {self.where} refused the credentials")
        return BusUnavailable(self.where, f"{type(reason).__name__} while connecting")

    async def _on_error(self, exc: Exception) -> None:
        self._last_error = exc
        text = str(exc)
        if "permissions violation" in text.lower():
            self._denied = text
        _log.debug("nats-py reported %s", type(exc).__name__)

    async def client(self) -> _Client:
        """The live client; a closed one (any unexpected -ERR closes it) is replaced first."""
        if self._client is None or self._client.is_closed:
            if self.closed:
                raise BusUnavailable(self.where, "this connection was closed")
            async with self._rebuilding:
                if self._client is None or self._client.is_closed:
                    await self.open(CONNECT_TIMEOUT)
        if self._client is None:
            raise BusUnavailable(self.where, "this connection was closed")
        return self._client

    async def twin(self, *, echo: bool) -> "NatsBus":
        """Another connection to the same servers, with the same layout."""
        bus = NatsBus(self._options | {"no_echo": not echo})
        await bus.open(CONNECT_TIMEOUT)
        bus.layout = self.layout
        return bus

    async def close(self) -> None:
        """Close for good; nothing is flushed, as every append waits for its ack anyway."""
        self.closed = True
        if self._client is not None:
            with contextlib.suppress(Exception):  # nats-py raises ConnectionResetError and others
                await asyncio.wait_for(self._client.close(), 2.0)

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Msg:
        """One request and its answer, else `BusUnavailable`, or `NotPermitted` if so told."""
        self._denied = ""
        try:
            client = await self.client()
            return await client.request(subject, body, timeout=timeout, headers=headers)
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            if f'"{subject}"' in self._denied:
                raise NotPermitted(f"NATS refused to let us publish to {subject}") from exc
            raise BusUnavailable(self.where, type(exc).__name__) from exc

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        """Store messages under an expectation; see `flightlog.bus.Bus.append`."""
        batch = uuid.uuid4().hex if len(messages) > 1 else None
        last = len(messages) - 1
        try:
            client = await self.client()
            for n, message in enumerate(messages[:-1]):
                await client.publish(
                    subject, message.body, headers=_headers(message, n, expected, batch)
                )
            headers = _headers(messages[-1], last, expected, batch, commit=True)
            reply = await self.request(subject, messages[-1].body, headers=headers, timeout=timeout)
        except (nats.errors.Error, OSError, BusUnavailable) as exc:
            return Unclear(type(exc.__cause__ or exc).__name__)
        return answer.read(reply.data, stream=self._stream(subject), limit=self.max_payload)

    def _stream(self, subject: str) -> str:
        found = names.parse_log_subject(subject, prefix=self.layout.prefix)
        return self.layout.stream_of(found[1]) if found else subject.partition(".")[0]

    async def after(
        self, stream: str, subject: str, sequence: int, *, leader: bool = False
    ) -> Message | None:
        """The first message on `subject` after `sequence`, or None."""
        query = json.dumps({"seq": sequence + 1, "next_by_subj": subject}).encode()
        if leader:
            return _from_leader(await self.api(f"STREAM.MSG.GET.{stream}", query))
        reply = await self.request(f"$JS.API.DIRECT.GET.{stream}", query)
        return None if _status(reply) == "404" else _message(reply)

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on `subject`, as the leader sees it, or None."""
        query = json.dumps({"last_by_subj": subject}).encode()
        return _from_leader(await self.api(f"STREAM.MSG.GET.{stream}", query))

    async def page(self, stream: str, subject: str, start: int) -> Page:
        """A page of a subject's messages from `start` on, by one batched direct get (ADR-31)."""
        query = {
            "seq": start,
            "next_by_subj": subject,
            "batch": PAGE_MESSAGES,
            "max_bytes": PAGE_BYTES,
        }
        messages: list[Message] = []
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def took(msg: Msg) -> None:
            if status := _status(msg):
                if not done.done():
                    done.set_result(status if status != "204" else _pending(msg))
            else:
                messages.append(_message(msg))

        await self._ask(f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), took, done)
        outcome = done.result()
        if outcome not in ("404", "0") and not outcome.isdigit():
            raise BusUnavailable(self.where, f"a read was answered {outcome}")
        return Page(messages, more=outcome not in ("404", "0"))

    async def _ask(
        self,
        subject: str,
        query: bytes,
        took: Callable[[Msg], Awaitable[None]],
        done: "asyncio.Future[str]",
    ) -> None:
        try:
            client = await self.client()
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox, cb=took, pending_bytes_limit=0)
            try:
                await client.publish(subject, query, reply=inbox)
                await asyncio.wait_for(done, REQUEST_TIMEOUT)
            finally:
                with contextlib.suppress(nats.errors.Error):
                    await subscription.unsubscribe()
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            raise BusUnavailable(self.where, f"{type(exc).__name__} while reading") from exc

    async def listen(self, subject: str, heard: Heard) -> _Listening:
        """Call `heard` for each core message on `subject`, over reconnects and rebuilds."""
        listening = _Listening(self, subject, heard)
        await self._subscribe(await self.client(), listening)
        self.listening.add(listening)
        return listening

    async def _subscribe(self, client: _Client, listening: _Listening) -> None:
        async def took(msg: Msg) -> None:
            await listening.heard(Message(msg.subject, 0, msg.data))

        listening.subscription = await client.subscribe(listening.subject, cb=took)
        await client.flush()

    async def say(self, subject: str, body: bytes) -> None:
        """Publish on core NATS; lost when the link is down."""
        with contextlib.suppress(nats.errors.Error, OSError, BusUnavailable):
            await (await self.client()).publish(subject, body)

    async def api(self, verb: str, body: bytes = b"") -> dict[str, Any]:
        """One JetStream API call; its error, if any, stays in the answer."""
        try:
            reply = await self.request(f"$JS.API.{verb}", body)
        except BusUnavailable as exc:
            if isinstance(exc.__cause__, nats.errors.NoRespondersError):
                raise LayoutRefused(
                    f"NATS at {self.where} has no JetStream for us",
                    advice="enable jetstream in the server and in the account",
                ) from exc
            raise
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def stream_configs(self) -> list[Mapping[str, Any]]:
        """The settings of every stream on the broker."""
        found: list[Mapping[str, Any]] = []
        while True:
            answered = await self.api("STREAM.LIST", json.dumps({"offset": len(found)}).encode())
            if "error" in answered:
                raise LayoutRefused(
                    f"listing streams failed: {answered['error'].get('description')}",
                    advice="enable jetstream in the server and in the account",
                )
            rows = answered.get("streams") or []
            found += [row["config"] for row in rows]
            if not rows or len(found) >= answered.get("total", 0):
                return found

    async def subjects(self, stream: str, *, filter: str = ">") -> AsyncIterator[dict[str, int]]:
        """Pages of a stream's subjects, each with its number of messages, as the leader knows."""
        seen = 0
        while True:
            query = {"subjects_filter": filter, "offset": seen}
            answered = await self.api(f"STREAM.INFO.{stream}", json.dumps(query).encode())
            if "error" in answered:
                raise LayoutRefused(f"stream {stream}: {answered['error'].get('description')}")
            found: dict[str, int] = answered["state"].get("subjects") or {}
            if found:
                yield found
            seen += len(found)
            if not found or seen >= answered.get("total", 0):
                return

    async def purge(self, stream: str, subject: str, *, below: int) -> int:
        """Delete a subject's messages below a stream sequence, for good; returns how many."""
        query = json.dumps({"filter": subject, "seq": below})
        answered = await self.api(f"STREAM.PURGE.{stream}", query.encode())
        if "error" in answered:
            raise BusUnavailable(stream, str(answered["error"].get("description")))
        return int(answered.get("purged", 0))

    @property
    def server_version(self) -> tuple[int, ...]:
        """The connected server's version."""
        text = self._client.connected_server_version if self._client else None
        return (text.major, text.minor, text.patch) if text else (0, 0, 0)


def _headers(
    message: Outgoing, n: int, expected: int, batch: str | None, *, commit: bool = False
) -> dict[str, str]:
    headers = dict(message.headers)  # nats-py is known to keep and change what it is handed
    if n == 0:
        headers[EXPECTED] = str(expected)
    if batch:
        headers["Nats-Batch-Id"] = batch
        headers["Nats-Batch-Sequence"] = str(n + 1)
        if commit:
            headers["Nats-Batch-Commit"] = "1"
    return headers


def _status(msg: Msg) -> str:
    return (msg.headers or {}).get("Status", "")


def _pending(msg: Msg) -> str:
    return (msg.headers or {}).get("Nats-Num-Pending", "0")


def _message(msg: Msg) -> Message:
    headers = msg.headers or {}
    return Message(headers["Nats-Subject"], int(headers["Nats-Sequence"]), msg.data)


def _from_leader(answered: dict[str, Any]) -> Message | None:
    found = answered.get("message")
    if found is None:
        if answered.get("error", {}).get("code") == 404:
            return None
        raise BusUnavailable("the leader", f"error {answered.get('error', {}).get('err_code')}")
    return Message(found["subject"], found["seq"], base64.b64decode(found.get("data", "")))


async def connect_bus(
    url: str,
    *,
    timeout: float = CONNECT_TIMEOUT,
    prefix: str = names.PREFIX,
    provision: bool | None = None,
    name: str = "flightlog",
    inbox_prefix: str = "_INBOX",
    echo: bool = True,
) -> NatsBus:
    """Connect and discover the layout; an empty broker on loopback is provisioned.

    `provision=True` creates the streams anywhere, `False` nowhere. Without `echo` a connection
    does not hear what it publishes: hearing its own appends costs a writer a tenth. Raises
    `BusUnavailable`, `NotPermitted` or `LayoutRefused`.
    """
    bus = await connect_bare(url, timeout=timeout, name=name, inbox_prefix=inbox_prefix, echo=echo)
    try:
        bus.layout = await _discover(bus, prefix, provision)
    except BaseException:
        await bus.close()
        raise
    return bus


async def connect_bare(
    url: str,
    *,
    timeout: float = CONNECT_TIMEOUT,
    name: str = "flightlog",
    inbox_prefix: str = "_INBOX",
    echo: bool = True,
) -> NatsBus:
    """Connect without a look at the streams: for who makes them. The bus has no layout yet."""
    bus = NatsBus(
        {
            "servers": [each.strip() for each in url.split(",")],
            "name": name,
            "pending_size": 0,  # otherwise a publish that timed out is stored later all the same
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RECONNECT_WAIT,
            "ping_interval": _PING_INTERVAL,
            "inbox_prefix": inbox_prefix,
            "no_echo": not echo,
        }
    )
    await bus.open(timeout)
    try:
        _check_version(bus)
    except BaseException:
        await bus.close()
        raise
    return bus


def _check_version(bus: NatsBus) -> None:
    if bus.server_version < layout.MIN_SERVER:
        found, needed = (".".join(map(str, v)) for v in (bus.server_version, layout.MIN_SERVER))
        raise LayoutRefused(
            f"nats-server {found} at {bus.where} is too old", advice=f"use {needed} or newer"
        )


async def _discover(bus: NatsBus, prefix: str, provision: bool | None) -> layout.Layout:
    configs = await bus.stream_configs()
    if not configs and (provision or (provision is None and _is_loopback(bus.where))):
        await create_streams(bus, prefix=prefix)
        configs = await bus.stream_configs()
    return layout.read_layout(configs, prefix=prefix)


def _is_loopback(where: str) -> bool:
    hosts = [each.split("://")[-1].rsplit(":", 1)[0] for each in where.split(", ")]
    return all(host in ("localhost", "[::1]") or host.startswith("127.") for host in hosts)


async def create_streams(
    bus: NatsBus, *, streams: int = 1, replicas: int = 1, prefix: str = names.PREFIX
) -> None:
    """Create what is missing of the layout; a stream that is there is never changed."""
    wanted = layout.log_configs(streams, replicas=replicas, prefix=prefix)
    await create(bus, wanted + layout.side_configs(replicas=replicas, prefix=prefix))


async def create(bus: NatsBus, configs: Sequence[layout.Config]) -> None:
    """Create streams with these settings, unless they are there. Raises `LayoutRefused`."""
    for config in configs:
        answered = await bus.api(f"STREAM.CREATE.{config['name']}", json.dumps(config).encode())
        error = answered.get("error")
        # 10058: in use with other settings, which discovery judges.
        if error and error.get("err_code") != 10058:
            raise LayoutRefused(f"stream {config['name']}: {error.get('description')}")
