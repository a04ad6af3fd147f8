"""redis-py's client for a URL: how long it waits, how often it tries, and what it does not send."""

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis as redis_py
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from flightlog.cache.place import PREFIX

_CONNECTIONS = 16
# That redis-py tells its name costs 1 ms of a resume: it reads the metadata of its own package.
_UNNAMED = ("driver_info",) if hasattr(redis_py, "DriverInfo") else ("lib_name", "lib_version")
_CLUSTER_SCHEMES = {"redis+cluster://": "redis://", "rediss+cluster://": "rediss://"}

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,80}")  # no colon: no prefix begins another's keys

Client = redis.Redis | redis.RedisCluster


def prefixed(url: str) -> tuple[str, str]:
    """The URL as Redis' clients know it, and the prefix of our keys that `?prefix=` names.

    Raises `ValueError` for what is no prefix.
    """
    plain, _, query = url.partition("?")
    asked = parse_qsl(query, keep_blank_values=True)
    prefix = dict(asked).get("prefix", PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise ValueError
    rest = urlencode([each for each in asked if each[0] != "prefix"])
    return f"{plain}?{rest}" if rest else plain, prefix


def make(url: str, timeout: float) -> Client:
    """A client that has sent nothing yet; `timeout` in seconds is that of one answer."""
    options: dict[str, Any] = {
        "protocol": 2,  # the shapes of answers differ between 2 and 3, and every server speaks 2
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        # one more try gets over a pooled connection that a restart cut
        "retry": Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.2), 1),
        **dict.fromkeys(_UNNAMED),
    }
    for scheme, plain in _CLUSTER_SCHEMES.items():
        if url.startswith(scheme):
            return redis.RedisCluster.from_url(plain + url.removeprefix(scheme), **options)
    pool = redis.BlockingConnectionPool.from_url(
        url, max_connections=_CONNECTIONS, timeout=timeout, **options
    )
    return redis.Redis.from_pool(pool)


def where(client: Client) -> str:
    """The server's address, without what is secret in its URL."""
    if isinstance(client, redis.RedisCluster):
        return ", ".join(node.name for node in client.nodes_manager.startup_nodes.values())
    options = client.connection_pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host')}:{options.get('port', 6379)}")
