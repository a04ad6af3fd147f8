"""Connecting to a tenant's log: what the arguments and the environment name."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from flightlog.blobs.spill import LEAST, THRESHOLD, Limits
from flightlog.bus import access
from flightlog.bus.access import NatsAccess
from flightlog.bus.link import CONNECT_TIMEOUT
from flightlog.bus.nats_bus import connect_bus
from flightlog.cache.store import Store
from flightlog.log import Log
from flightlog.running.stopping import ending
from flightlog.wire import subject as names
from flightlog.wire.carry import Redact


@asynccontextmanager
async def connect(
    *,
    nats: str | NatsAccess | None = None,
    redis: str | None = None,
    tenant: str | None = None,
    redact: Redact | None = None,
    provision: bool | None = None,
    prefix: str | None = None,
    timeout: float = CONNECT_TIMEOUT,
    blob_threshold: int = THRESHOLD,
) -> AsyncGenerator[Log]:
    """Connect to a tenant's log.

    `nats` and `redis` are URLs (several NATS servers with commas); without them
    `FLIGHTLOG_NATS_URL` and `FLIGHTLOG_REDIS_URL` are taken, then nats://127.0.0.1:4222 and no
    Redis, which only makes resuming fast and `sessions()` possible. What proves who we are is in
    the URL, in `FLIGHTLOG_NATS_*`, in the `nats` context that `FLIGHTLOG_NATS_CONTEXT` names, or
    in a `NatsAccess` given instead. `redact` maps each string leaf of every payload before it is
    encoded; it must be pure and idempotent. `provision=True` creates missing streams; by default
    only an empty broker on loopback is provisioned. Of payloads above `blob_threshold` bytes the
    largest texts and values are stored as blobs. Raises `BusUnavailable`, `NotPermitted`,
    `CredentialsUnusable` or `LayoutRefused` within `timeout` seconds.
    """
    redis = access.redis_url(redis)
    told = tenant if tenant is not None else os.environ.get("FLIGHTLOG_TENANT") or "default"
    tenant = names.token("tenant", told)
    where = access.resolve(nats)
    prefix = prefix or os.environ.get("FLIGHTLOG_SUBJECT_PREFIX") or names.PREFIX
    store = Store.connect(redis) if redis else None
    bus = await connect_bus(where, timeout=timeout, prefix=prefix, provision=provision, echo=False)
    limits = Limits(blob_threshold, min(LEAST, blob_threshold // 4))
    log = Log(bus, store, tenant, redact, limits=limits)
    try:
        async with ending():
            yield log
    finally:
        await log.close()
