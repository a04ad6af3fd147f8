"""Gathering what is known of a deployment. Asks only; whatever is refused is unproven, no error."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog import clock
from flightlog.bus import nats_bus
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import consumers
from flightlog.bus.protocol import Message
from flightlog.cache.floor import Floors
from flightlog.cache.store import Store, StoreUnavailable
from flightlog.cache.vitals import Vitals
from flightlog.errors import (
    BusUnavailable,
    CredentialsUnusable,
    FlightlogError,
    LayoutRefused,
    NotPermitted,
)
from flightlog.wire import subject as names
from flightlog.wire.layout import DEAD_STREAM, NOTICE_STREAM
from flightlog_recorder.access.role import OWN_PERMISSIONS, SYSTEM_REQUEST
from flightlog_recorder.doctor import nodes, rights
from flightlog_recorder.doctor.catalog import Standing
from flightlog_recorder.doctor.consumers import Consumer, moment, read
from flightlog_recorder.doctor.finding import Unproven
from flightlog_recorder.doctor.nodes import Node, Nodes
from flightlog_recorder.doctor.rights import Rights
from flightlog_recorder.doctor.streams import Streams

SYSTEM = "flightlog doctor --system-context NAME (or FLIGHTLOG_SYSTEM_NATS_USER, _PASSWORD_FILE)"
_AWAY = "nats server report jetstream: a majority of the nodes must run"
_REDIS = "flightlog --redis URL doctor (or FLIGHTLOG_REDIS_URL)"
_LOOK = "run it as an operator, or as the recorder"
NO_STREAMS = Unproven("no log stream is known", "mend the streams first")
AGAIN = 0.5  # seconds
_NANOSECONDS = 1_000_000_000
_T = TypeVar("_T")


class Place(Struct, frozen=True):
    """Where to look: as whom, with whose help, and at which Redis."""

    nats: NatsAccess
    system: NatsAccess | None = None
    redis: str | None = None
    prefix: str = names.PREFIX

    def __repr__(self) -> str:
        return f"Place({self.nats!r})"


class Cached(Struct, frozen=True):
    """What Redis told: of itself, of its user, and of the projector."""

    vitals: list[Vitals] | Unproven
    excess: list[str] | Unproven
    floors: dict[str, Standing] | Unproven


class Facts(Struct, frozen=True):
    """What is known. `user` is the name that the server knows us by, if it is one."""

    nodes: Nodes
    streams: Streams
    consumers: list[Consumer] | Unproven
    cached: Cached
    rights: Rights | Unproven
    system_rights: Rights | None
    user: str
    inbox: str


class _Whoami(Struct, frozen=True):
    node: Node
    rights: Rights | Unproven
    user: str = ""


async def gather(place: Place) -> Facts:
    """Ask NATS and Redis. Raises `BusUnavailable`, `NotPermitted`, `LayoutRefused` (too old)."""
    async with await nats_bus.connect_bare(place.nats) as bus:
        me = await _whoami(bus)
        streams = await _settled(bus, place.prefix)
        logs = [str(info["config"]["name"]) for info in streams.logs]
        every, system_rights = await _servers(place.system)
        return Facts(
            nodes=Nodes(me.node, every, streams.homes),
            streams=streams,
            consumers=await _consumers(bus, logs),
            cached=await _cached(place.redis, logs),
            rights=me.rights,
            system_rights=system_rights,
            user=me.user,
            inbox=place.nats.inbox,
        )


async def _whoami(bus: NatsBus) -> _Whoami:
    """The server that we are connected to, and what it says that we may do."""
    version = ".".join(map(str, bus.server_version))
    node = Node(bus.where, version, bus.max_payload)
    before = clock.wall_ns()
    try:
        told = msgspec.json.decode((await bus.request(OWN_PERMISSIONS)).data)
    except NotPermitted:
        why = f"these credentials may not ask {OWN_PERMISSIONS}"
        return _Whoami(node, Unproven(why, f"let them publish to {OWN_PERMISSIONS}"))
    server, user = told["server"], str(told["data"].get("user") or "")
    ahead = _ahead(server["time"], before)
    node = Node(
        str(server["name"]), str(server["ver"]), bus.max_payload, ahead=ahead, id=server["id"]
    )
    return _Whoami(node, rights.read(told), user)


def _ahead(theirs: str, before: int) -> float:
    """How far a server's clock is ahead of ours, in seconds; read within one request."""
    middle = (before + clock.wall_ns()) / 2 / _NANOSECONDS
    return moment(theirs).timestamp() - middle


async def _settled(bus: NatsBus, prefix: str) -> Streams:
    """The streams; looked at again if replicas are behind, as fresh ones are for a moment."""
    found = await _streams(bus, prefix)
    if found.settled:
        return found
    await asyncio.sleep(AGAIN)
    return await _streams(bus, prefix)


async def _streams(bus: NatsBus, prefix: str) -> Streams:
    infos: list[Mapping[str, Any]] = []
    leaderless: list[str] = []
    try:
        async for page in bus.stream_pages():
            infos += page["streams"]
            leaderless += page["missing"]
    except (LayoutRefused, BusUnavailable) as exc:
        return Streams(infos, leaderless, prefix, refused=str(exc))
    return Streams(infos, sorted(set(leaderless)), prefix)


async def _servers(system: NatsAccess | None) -> tuple[list[Node] | Unproven, Rights | None]:
    """Every server by its own word, and what the user of the system account may do."""
    if system is None:
        return Unproven("it takes a user of the system account", SYSTEM), None
    try:
        async with await nats_bus.connect_bare(system) as bus:
            return await _ask_servers(bus), await _boundlessness(bus)
    except (BusUnavailable, NotPermitted, CredentialsUnusable, LayoutRefused) as exc:
        return Unproven(f"the system account: {exc}", SYSTEM), None


async def _ask_servers(bus: NatsBus) -> list[Node]:
    found: list[Node] = []
    before = clock.wall_ns()

    async def heard(message: Message) -> None:
        if varz := msgspec.json.decode(message.body).get("data"):
            found.append(nodes.read(varz, _ahead(varz["now"], before)))

    await bus.ask_all(SYSTEM_REQUEST, heard)
    return sorted(found, key=lambda node: node.name)


async def _boundlessness(bus: NatsBus) -> Rights | None:
    """What a user who may ask that is allowed; the doctor's own may not, and need not."""
    try:
        return rights.read(msgspec.json.decode((await bus.request(OWN_PERMISSIONS)).data))
    except NotPermitted:
        return None


async def _consumers(bus: NatsBus, logs: Sequence[str]) -> list[Consumer] | Unproven:
    if not logs:
        return NO_STREAMS
    streams = [*logs, NOTICE_STREAM, DEAD_STREAM]
    try:
        found = await _listed(bus, streams)
        if any(not each.is_asked for each in found):  # perhaps between two requests
            await asyncio.sleep(AGAIN)
            found = await _listed(bus, streams)
        return [replace(each, oldest=await _oldest(bus, each)) for each in found]
    except NotPermitted:
        return Unproven("these credentials may not list consumers", _LOOK)
    except BusUnavailable as exc:
        return Unproven(f"consumers are not told: {exc}", _AWAY)


async def _listed(bus: NatsBus, streams: Sequence[str]) -> list[Consumer]:
    return [read(stream, row) for stream in streams async for row in consumers(bus, stream)]


async def _oldest(bus: NatsBus, one: Consumer) -> float:
    """How long the first message that the consumer has not settled waits, in seconds."""
    if not one.owed:
        return 0.0
    query = msgspec.json.encode({"seq": one.floor + 1, "next_by_subj": one.filter})
    found = (await bus.api(f"STREAM.MSG.GET.{one.stream}", query)).get("message")
    return one.told_at - moment(found["time"]).timestamp() if found else 0.0


async def _cached(url: str | None, logs: list[str]) -> Cached:
    if url is None:
        return _nothing(Unproven("no Redis is named", _REDIS))
    try:
        store = Store.connect(url)
    except StoreUnavailable as exc:
        return _nothing(_away(exc))
    try:
        return Cached(
            vitals=await _told(store.vitals),
            excess=await _told(store.excess),
            floors=await _told(lambda: _floors(store, logs)),
        )
    finally:
        await store.close()


def _nothing(why: Unproven) -> Cached:
    return Cached(why, why, why)


async def _told(ask: Callable[[], Awaitable[_T | Unproven]]) -> _T | Unproven:
    try:
        return await ask()
    except NotPermitted as exc:
        return Unproven(
            str(exc), "let this user of Redis run INFO, TIME, GET and SMEMBERS: an operator may"
        )
    except StoreUnavailable as exc:
        return _away(exc)


def _away(exc: FlightlogError) -> Unproven:
    return Unproven(str(exc), "start Redis, or name the right one: --redis URL", is_wrong=True)


async def _floors(store: Store, streams: list[str]) -> dict[str, Standing] | Unproven:
    if not streams:
        return NO_STREAMS
    found: dict[str, Standing] = {}
    for stream in streams:
        floors = Floors(store, stream)
        floor = await floors.floor()
        found[stream] = Standing(
            floor=floor.sequence if floor else None,
            rebuilding=await floors.claimed(),
            aside=[session for _, session in await floors.aside()],
        )
    return found
