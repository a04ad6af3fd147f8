"""JetStream as the bus protocol: appends under expectation, reads in pages, making streams."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from flightlog import clock
from flightlog.bus import answer, frame
from flightlog.bus.access import NatsAccess, options
from flightlog.bus.answer import Answer, Oversized, Unclear
from flightlog.bus.link import CONNECT_TIMEOUT, PING_INTERVAL, RECONNECT_WAIT, Link
from flightlog.bus.protocol import Message, Outgoing, Page
from flightlog.errors import BusUnavailable, LayoutRefused
from flightlog.wire import layout
from flightlog.wire import subject as names

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
PAGE_MESSAGES = 1_000
PAGE_BYTES = 1 << 20  # a page is what a reader holds in memory
_ALL, _SOME = "all", "some"
_NO_MESSAGE = 10037  # the one error of a read that means: there is none
_SIDE = {config["name"] for config in layout.side_configs()}
_ENABLE = "enable jetstream in the server and in the account"


class NatsBus(Link):
    """The bus protocol on a link."""

    layout: layout.Layout

    async def twin(self, *, echo: bool) -> "NatsBus":
        """Another connection to the same servers, with the same layout."""
        bus = NatsBus(self._options | {"no_echo": not echo})
        await bus.open(CONNECT_TIMEOUT)
        bus.layout = self.layout
        return bus

    async def append(
        self, subject: str, messages: Sequence[Outgoing], *, expected: int, timeout: float
    ) -> Answer:
        """Store messages under an expectation; see `flightlog.bus.Bus.append`."""
        batch = uuid.uuid4().hex if len(messages) > 1 else None
        ready = [
            (each.body, _headers(each, n, expected, batch, last=n == len(messages) - 1))
            for n, each in enumerate(messages)
        ]
        limit = self.max_payload
        if any(len(body) + len(headers) > limit for body, headers in ready):
            return Oversized(limit)  # it would close the connection for good
        body, headers = ready.pop()
        before = [frame.publication(subject, each, headers=its) for each, its in ready]
        try:
            reply = await self.request(
                subject, body, headers=headers, before=before, timeout=timeout
            )
        except BusUnavailable as exc:
            return Unclear(type(exc.__cause__ or exc).__name__)
        return answer.read(reply.data, stream=self._stream(subject), limit=limit)

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
        return None if _status(reply) == "404" else _stored(reply)

    async def last(self, stream: str, subject: str) -> Message | None:
        """The last message on `subject`, as the leader sees it, or None."""
        query = json.dumps({"last_by_subj": subject}).encode()
        return _from_leader(await self.api(f"STREAM.MSG.GET.{stream}", query))

    async def page(self, stream: str, subject: str, start: int, *, most: int | None = None) -> Page:
        """A page of a subject's messages from `start` on, by one batched direct get (ADR-31)."""
        query = {
            "seq": start,
            "next_by_subj": subject,
            "batch": min(most or PAGE_MESSAGES, PAGE_MESSAGES),
            "max_bytes": PAGE_BYTES,
        }
        reading = f"$JS.API.DIRECT.GET.{stream}"
        messages, last = await self.read(reading, json.dumps(query).encode())
        end = _end(last)
        if end not in (_ALL, _SOME):
            raise BusUnavailable(self.where, f"a read of {stream} was answered {end}")
        return Page(messages, more=end == _SOME)

    async def api(self, verb: str, body: bytes = b"") -> dict[str, Any]:
        """One JetStream API call; its error, if any, stays in the answer."""
        reply = await self.request(f"$JS.API.{verb}", body)
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def stream_configs(self) -> list[Mapping[str, Any]]:
        """The settings of every stream on the broker."""
        return [row["config"] async for page in self.stream_pages() for row in page["streams"]]

    async def stream_pages(self) -> AsyncIterator[dict[str, Any]]:
        """Every stream as its leader describes it (`streams`), those without one (`missing`)."""
        seen = 0
        while True:
            answered = await self._list_streams(seen)
            rows = answered.get("streams") or []
            seen += len(rows)
            yield {"streams": rows, "missing": answered.get("missing") or []}
            if not rows or seen >= answered.get("total", 0):
                return

    async def _list_streams(self, offset: int) -> dict[str, Any]:
        try:
            answered = await self.api("STREAM.LIST", json.dumps({"offset": offset}).encode())
        except BusUnavailable as exc:
            if not isinstance(exc.__cause__, nats.errors.NoRespondersError):
                raise
            raise LayoutRefused(f"NATS at {self.where} has no JetStream", advice=_ENABLE) from exc
        if "error" in answered:
            why = answered["error"].get("description")
            raise LayoutRefused(f"NATS at {self.where} lists no streams: {why}", advice=_ENABLE)
        return answered

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


def _headers(message: Outgoing, n: int, expected: int, batch: str | None, *, last: bool) -> bytes:
    headers = dict(message.headers)
    if n == 0:
        headers[EXPECTED] = str(expected)
    if batch:
        headers["Nats-Batch-Id"] = batch
        headers["Nats-Batch-Sequence"] = str(n + 1)
        if last:
            headers["Nats-Batch-Commit"] = "1"
    return frame.header_block(headers)


def _status(msg: Msg) -> str:
    return (msg.headers or {}).get("Status", "")


def _end(msg: Msg) -> str:
    """How a batched read ended: all that this replica has, a full page, or the server's refusal."""
    match _status(msg):
        case "204":
            return _ALL if (msg.headers or {}).get("Nats-Num-Pending", "0") == "0" else _SOME
        case "404":
            return _ALL
        case status:
            return status


def _stored(msg: Msg) -> Message:
    headers = msg.headers or {}
    try:
        return Message(headers["Nats-Subject"], int(headers["Nats-Sequence"]), msg.data)
    except (KeyError, ValueError):
        raise BusUnavailable("a replica", f"a read was answered {_status(msg)}") from None


def _from_leader(answered: dict[str, Any]) -> Message | None:
    found = answered.get("message")
    if found is None:
        code = answered.get("error", {}).get("err_code")
        if code == _NO_MESSAGE:
            return None
        raise BusUnavailable("the stream's leader", f"error {code}")
    return Message(found["subject"], found["seq"], base64.b64decode(found.get("data", "")))


async def connect_bus(
    where: str | NatsAccess,
    *,
    timeout: float = CONNECT_TIMEOUT,
    prefix: str = names.PREFIX,
    provision: bool | None = None,
    name: str = "flightlog",
    echo: bool = True,
) -> NatsBus:
    """Connect and discover the layout; an empty broker on loopback is provisioned.

    `provision=True` creates the streams anywhere, `False` nowhere. Without `echo` a connection
    does not hear what it publishes: hearing its own appends costs a writer a tenth. Raises
    `BusUnavailable`, `NotPermitted` or `LayoutRefused`.
    """
    until = clock.elapsed() + timeout
    bus = await connect_bare(where, timeout=timeout, name=name, echo=echo)
    try:
        bus.layout = await _patiently_discover(bus, prefix, provision, until=until)
    except BaseException:
        await bus.close()
        raise
    return bus


async def connect_bare(
    where: str | NatsAccess,
    *,
    timeout: float = CONNECT_TIMEOUT,
    name: str = "flightlog",
    echo: bool = True,
) -> NatsBus:
    """Connect without a look at the streams: for who makes them. The bus has no layout yet."""
    access = NatsAccess(url=where) if isinstance(where, str) else where
    bus = NatsBus(
        options(access)
        | {
            "name": name,
            "pending_size": 0,  # otherwise a publish that timed out is stored later all the same
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT,
            "ping_interval": PING_INTERVAL,
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


async def _patiently_discover(
    bus: NatsBus, prefix: str, provision: bool | None, *, until: float
) -> layout.Layout:
    """Discover again when the link is lost meanwhile, as happens where many start at once."""
    trouble = BusUnavailable(bus.where, "it does not say in time which streams it has")
    try:
        async with asyncio.timeout_at(until):
            while True:
                try:
                    return await _discover(bus, prefix, provision)
                except BusUnavailable as exc:
                    trouble = exc
                await asyncio.sleep(RECONNECT_WAIT)
    except TimeoutError:
        raise trouble from trouble.__cause__


async def _discover(bus: NatsBus, prefix: str, provision: bool | None) -> layout.Layout:
    configs = await bus.stream_configs()
    allowed = provision or (provision is None and _is_loopback(bus.where))
    if allowed and {config["name"] for config in configs} <= _SIDE:
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
    logs = layout.log_configs(streams, replicas=replicas, prefix=prefix)
    # Logs last: who finds one finds the rest, however many processes start at once.
    await create(bus, layout.side_configs(replicas=replicas, prefix=prefix) + logs)


async def create(bus: NatsBus, configs: Sequence[layout.Config]) -> None:
    """Create streams with these settings, unless they are there. Raises `LayoutRefused`."""
    for config in configs:
        answered = await bus.api(f"STREAM.CREATE.{config['name']}", json.dumps(config).encode())
        error = answered.get("error")
        # 10058: in use with other settings, which discovery judges.
        if error and error.get("err_code") != 10058:
            raise LayoutRefused(f"stream {config['name']}: {error.get('description')}")
