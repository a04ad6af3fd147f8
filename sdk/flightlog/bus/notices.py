"""Notices of a stream's messages, headers only, from a durable pull consumer.

Spoken over nats-py's client as raw requests: its own `fetch` loses pulls over reconnects, and
cannot tell a quiet stream from a deaf consumer.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from typing import Any

import nats.errors
from msgspec import Struct
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import BusUnavailable, LayoutRefused

ACK_WAIT = 30.0  # seconds until a notice that is not acknowledged is delivered again
MAX_ACK_PENDING = 50_000  # with the default 1,000 a backlog took 43 s and not 2.2 s
_PULL_MESSAGES = 10_000  # per request
_PULL_LIFE = 30.0  # seconds
_HEARTBEAT = 1.0  # seconds
_DEAF_AFTER = 3.0  # seconds without message or heartbeat: the broker knows nothing of our request
_NANOSECONDS = 1_000_000_000
_NO_SUCH_CONSUMER = 10014


class Notice(Struct, frozen=True):
    """That a message was stored; `type` is that of its event or control message, if it says so."""

    subject: str
    sequence: int
    type: str
    delivered: int
    reply: str


class Standing(Struct, frozen=True):
    """Where a consumer stands, in stream sequences: acknowledged up to, delivered up to."""

    ack_floor: int
    delivered: int
    pending: int
    ack_pending: int


class Notices:
    """A durable consumer of one stream, shared by every process that names it."""

    def __init__(self, bus: NatsBus, stream: str, durable: str) -> None:
        self._bus = bus
        self.stream, self.durable = stream, durable
        self._link: tuple[int, int] | None = None
        self._subscription: Subscription | None = None
        self._arrived: list[Notice] = []
        self._news = asyncio.Event()
        self._wanted = 0
        self._asked_at = self._quiet = 0.0
        self._inbox = ""
        self._refusal = ""

    async def open(self) -> None:
        """Create the consumer unless it is there; one that others made is taken as it is."""
        found = await self._bus.api(f"CONSUMER.INFO.{self.stream}.{self.durable}")
        if found.get("error", {}).get("err_code") != _NO_SUCH_CONSUMER:
            return
        request = json.dumps({"stream_name": self.stream, "config": _config(self.durable)})
        made = await self._bus.api(
            f"CONSUMER.CREATE.{self.stream}.{self.durable}", request.encode()
        )
        if "error" in made:
            raise LayoutRefused(
                f"consumer {self.durable} of {self.stream}: {made['error'].get('description')}"
            )

    async def fetch(self, batch: int, timeout: float) -> list[Notice]:
        """Up to `batch` notices; as soon as there are any, none after `timeout` seconds.

        Raises `BusUnavailable`. A pull that the broker forgot is made again within 3 s.
        """
        deadline = time.monotonic() + timeout
        while not self._arrived and (left := deadline - time.monotonic()) > 0:
            await self._keep_asking()
            await self._await_news(min(left, _HEARTBEAT))
        taken, self._arrived = self._arrived[:batch], self._arrived[batch:]
        return taken

    async def ack(self, notices: Sequence[Notice]) -> None:
        """Acknowledge; best effort, as what is lost comes again. Raises `BusUnavailable`."""
        try:
            client = await self._bus.client()
            for notice in notices:
                await client.publish(notice.reply, b"+ACK")
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self._bus.where, f"{type(exc).__name__} at an ack") from exc

    async def info(self) -> Standing:
        """Where the consumer stands, as its leader says."""
        found = await self._bus.api(f"CONSUMER.INFO.{self.stream}.{self.durable}")
        if "error" in found:
            raise BusUnavailable(self._bus.where, f"consumer {self.durable} does not answer")
        return Standing(
            ack_floor=int(found["ack_floor"]["stream_seq"]),
            delivered=int(found["delivered"]["stream_seq"]),
            pending=int(found["num_pending"]),
            ack_pending=int(found["num_ack_pending"]),
        )

    async def renew(self) -> None:
        """Subscribe anew, and create the consumer if it is gone; notices in hand stay in hand."""
        await self.close()
        await self.open()

    async def close(self) -> None:
        """Take no more. What was delivered and not acknowledged goes to others after `ACK_WAIT`."""
        subscription, self._subscription = self._subscription, None
        self._link, self._wanted = None, 0
        if subscription is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    async def _await_news(self, timeout: float) -> None:
        """Wait; only time spent waiting counts as quiet, as a busy process hears late."""
        self._news.clear()
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            self._quiet += timeout

    async def _keep_asking(self) -> None:
        client = await self._bus.client()
        now = time.monotonic()
        if self._refusal:
            refusal, self._refusal = self._refusal, ""
            raise BusUnavailable(self._bus.where, f"{self.stream}: {refusal}")
        if self._link != _link(client) or self._quiet > _DEAF_AFTER:
            await self.renew()
            await self._subscribe(client)
        if self._wanted <= 0 or now - self._asked_at > _PULL_LIFE + _DEAF_AFTER:
            await self._ask(client)

    async def _subscribe(self, client: Any) -> None:
        try:
            self._inbox = client.new_inbox()
            self._subscription = await client.subscribe(self._inbox, cb=self._took)
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self._bus.where, type(exc).__name__) from exc
        self._link, self._quiet = _link(client), 0.0

    async def _ask(self, client: Any) -> None:
        request = {
            "batch": _PULL_MESSAGES,
            "expires": int(_PULL_LIFE * _NANOSECONDS),
            "idle_heartbeat": int(_HEARTBEAT * _NANOSECONDS),
        }
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.durable}"
        try:
            await client.publish(subject, json.dumps(request).encode(), reply=self._inbox)
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self._bus.where, type(exc).__name__) from exc
        self._wanted, self._asked_at = _PULL_MESSAGES, time.monotonic()

    async def _took(self, msg: Msg) -> None:
        if msg.subject == self._inbox and msg.headers and (status := msg.headers.get("Status")):
            self._end_pull(status, msg.headers.get("Description", ""))
        elif notice := _notice(msg):
            self._arrived.append(notice)
            self._wanted -= 1
        self._quiet = 0.0
        self._news.set()

    def _end_pull(self, status: str, description: str) -> None:
        if status == "100":
            return
        self._wanted = 0
        if status == "503" or "Consumer Deleted" in description:
            self._link = None
        elif status not in ("404", "408", "409"):
            self._refusal = f"a pull was answered {status}"


def _link(client: Any) -> tuple[int, int]:
    """What is another one after a reconnect: the broker then may have forgotten our pull."""
    return id(client), client.stats["reconnects"]


def _config(durable: str) -> dict[str, Any]:
    return {
        "durable_name": durable,
        "name": durable,
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT * _NANOSECONDS),
        "deliver_policy": "all",
        "replay_policy": "instant",
        "max_deliver": -1,
        "max_ack_pending": MAX_ACK_PENDING,
        "headers_only": True,
    }


def _notice(msg: Msg) -> Notice | None:
    """Read the ack subject: `$JS.ACK.` [domain, account,] stream, consumer, and five numbers."""
    tokens = msg.reply.split(".")
    if len(tokens) < 9 or tokens[1] != "ACK":
        return None
    first = 4 if len(tokens) == 9 else 6
    return Notice(
        subject=msg.subject,
        sequence=int(tokens[first + 1]),
        type=(msg.headers or {}).get("Flightlog-Type", ""),
        delivered=int(tokens[first]),
        reply=msg.reply,
    )
