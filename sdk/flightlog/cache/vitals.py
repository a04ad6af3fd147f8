"""How the servers behind a store are set and stand, by `INFO` and `TIME`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio as redis
from msgspec import Struct
from redis.exceptions import ResponseError

from flightlog import clock
from flightlog.cache.client import Client

_NANOSECONDS = 1_000_000_000


class Vitals(Struct, frozen=True):
    """One server. Memory in bytes, `limit` 0 for none; `ahead` is its clock less ours, seconds."""

    where: str
    version: str
    policy: str  # of eviction; empty where the server does not tell
    used: int
    limit: int
    ahead: float


async def of(client: Client) -> list[Vitals]:
    """Ask the server, or each primary of a cluster."""
    if not isinstance(client, redis.RedisCluster):
        return [await _ask(client, "", {})]
    await client.initialize()
    nodes = client.get_primaries()
    return list(await asyncio.gather(*(_ask(client, n.name, {"target_nodes": n}) for n in nodes)))


async def _ask(client: Any, name: str, to: dict[str, Any]) -> Vitals:
    before = clock.wall_ns()
    told = await client.time(**to)
    ahead = _seconds(told) - (before + clock.wall_ns()) / 2 / _NANOSECONDS
    return read(name, await client.info(**to), ahead)


async def excess(client: Any) -> list[str]:
    """What we may do there though no work of ours needs it, tried where it does nothing.

    Who may not is told so before the command is looked at.
    """
    tries = {
        "CONFIG": lambda: client.config_get("maxmemory"),
        "DEL of any key": lambda: client.delete(f"no-key-of-anybody:{clock.bits(128):032x}"),
    }
    return [verb for verb, attempt in tries.items() if await _is_let(attempt)]


async def _is_let(attempt: Callable[[], Awaitable[object]]) -> bool:
    try:
        await attempt()
    except ResponseError:
        return False
    return True


def _seconds(told: Any) -> float:
    """Seconds since 1970, from `TIME`: a pair, or a pair by the name of the only node asked."""
    seconds, micros = next(iter(told.values())) if isinstance(told, dict) else told
    return int(seconds) + int(micros) / 1e6


def read(name: str, info: dict[str, Any], ahead: float) -> Vitals:
    """From the fields of `INFO`; those that a managed service leaves out are empty or 0."""
    return Vitals(
        where=name,
        version=str(info.get("valkey_version") or info.get("redis_version") or ""),
        policy=str(info.get("maxmemory_policy") or ""),
        used=int(info.get("used_memory") or 0),
        limit=int(info.get("maxmemory") or 0),
        ahead=ahead,
    )
