"""Notices of a stream's messages, from a durable pull consumer.

Spoken over nats-py's client as raw requests: its own `fetch` loses pulls over reconnects, and
cannot tell a quiet stream from a deaf consumer.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import nats.errors
from msgspec import Struct
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import BusUnavailable, LayoutRefused

ACK_WAIT = 30.0  # seconds until a notice that is not acknowledged is delivered again
MAX_ACK_PENDING = 50_000  # with the default 1,000 a backlog took 43 s and not 2.2 s
_PULL_LIFE = 30.0  # seconds
_HEARTBEAT = 1.0  # seconds
_DEAF_AFTER = 3.0  # seconds without message or heartbeat: the broker knows nothing of our request
_NANOSECONDS = 1_000_000_000
_NO_SUCH_CONSUMER = 10014
_SIZE = "Nats-Msg-Size"  # the server's header for a body that it left out


Start = Literal["all", "new"] | datetime


class Notice(Struct, frozen=True, eq=False, weakref=True):
    """That a message was stored; `type` is that of its event or control message, if it says so.

    `body` is None where the consumer brings headers alone.
    """

    subject: str
    sequence: int
    type: str
    delivered: int
    reply: str
    body: bytes | None = None


class Standing(Struct, frozen=True):
    """Where a consumer stands, in stream sequences: acknowledged up to, delivered up to."""

    ack_floor: int
    delivered: int
    pending: int
    ack_pending: int


class Wish(Struct, frozen=True):
    """How a consumer is made where there is none, and how many messages a request asks for.

    `filter` narrows the stream to one subject with wildcards.
    """

    filter: str = ""
    start: Start = "all"
    headers_only: bool = True
    max_ack_pending: int = MAX_ACK_PENDING
    batch: int = 10_000


class Notices:
    """A durable consumer of one stream, shared by every process that names it."""

    def __init__(self, bus: NatsBus, stream: str, durable: str, wish: Wish | None = None) -> None:
        self._bus = bus
        self.stream, self.durable = stream, durable
        self._wish = wish or Wish()
        self._floor: int | None = None  # where one that vanishes under us is to go on
        self._link: tuple[int, int] | None = None
        self._subscription: Subscription | None = None
        self._arrived: list[Notice] = []
        self._news = asyncio.Event()
        self._wanted = 0
        self._asked_at = self._quiet = 0.0
        self._inbox = ""
        self._refusal = ""
        self._pull = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._acks = f"$JS.ACK.{stream}.{durable}."

    async def open(self) -> None:
        """Create the consumer unless it is there; one that others made is taken as it is.

        One that vanished goes on where it last was seen to stand. Raises `LayoutRefused`, also for
        one that brings other subjects.
        """
        found = await self._bus.api(f"CONSUMER.INFO.{self.stream}.{self.durable}")
        if found.get("error", {}).get("err_code") == _NO_SUCH_CONSUMER:
            found = await self._create()
        brought = found.get("config", {}).get("filter_subject", "")
        if self._wish.filter and "config" in found and brought != self._wish.filter:
            raise LayoutRefused(
                f"consumer {self.durable} of {self.stream} brings {brought or 'all of it'}, "
                f"not {self._wish.filter}",
                advice="remove it, or take another name",
            )
        if "ack_floor" in found:
            self._floor = int(found["ack_floor"]["stream_seq"])

    async def _create(self) -> dict[str, Any]:
        config = _config(self.durable, self._wish, self._floor)
        request = json.dumps({"stream_name": self.stream, "config": config})
        place = ".".join(filter(None, (self.stream, self.durable, self._wish.filter)))
        made = await self._bus.api(f"CONSUMER.CREATE.{place}", request.encode())
        if "error" in made:
            raise LayoutRefused(
                f"consumer {self.durable} of {self.stream}: {made['error'].get('description')}"
            )
        return made

    async def fetch(self, batch: int, timeout: float) -> list[Notice]:
        """Up to `batch` notices; as soon as there are any, none after `timeout` seconds.

        Raises `BusUnavailable`, and `NotPermitted` if pulls or acknowledgements are refused. A pull
        that the broker forgot is made again within 3 s.
        """
        deadline = time.monotonic() + timeout
        while not self._arrived and (left := deadline - time.monotonic()) > 0:
            await self._keep_asking()
            await self._await_news(min(left, _HEARTBEAT))
        taken, self._arrived = self._arrived[:batch], self._arrived[batch:]
        return taken

    async def ack(self, notices: Sequence[Notice]) -> None:
        """Acknowledge; best effort, as what is lost comes again. Raises `BusUnavailable`."""
        await self._answer(notices, b"+ACK")

    async def keep(self, notices: Sequence[Notice]) -> None:
        """Ask for another `ACK_WAIT` before these go to others. Raises `BusUnavailable`."""
        await self._answer(notices, b"+WPI")

    async def give_back(self, notices: Sequence[Notice], delay: float = 0.0) -> None:
        """Have these delivered again, to anyone, in `delay` seconds. Raises `BusUnavailable`."""
        word = json.dumps({"delay": int(delay * _NANOSECONDS)}).encode() if delay > 0 else b""
        await self._answer(notices, b"-NAK " + word)

    async def _answer(self, notices: Sequence[Notice], word: bytes) -> None:
        try:
            client = await self._bus.client()
            for notice in notices:
                await client.publish(notice.reply, word)
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self._bus.where, f"{type(exc).__name__} at an ack") from exc

    async def info(self) -> Standing:
        """Where the consumer stands, as its leader says."""
        found = await self._bus.api(f"CONSUMER.INFO.{self.stream}.{self.durable}")
        if "error" in found:
            raise BusUnavailable(self._bus.where, f"consumer {self.durable} does not answer")
        self._floor = int(found["ack_floor"]["stream_seq"])
        return Standing(
            ack_floor=self._floor,
            delivered=int(found["delivered"]["stream_seq"]),
            pending=int(found["num_pending"]),
            ack_pending=int(found["num_ack_pending"]),
        )

    async def renew(self) -> None:
        """Subscribe anew, and create the consumer if it is gone; notices in hand stay in hand."""
        await self.close()
        await self.open()

    async def drain(self) -> list[Notice]:
        """Take no more; what had come meanwhile and is not fetched, to be given back."""
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error, OSError):
                await self._subscription.drain()  # type: ignore[no-untyped-call]
            self._subscription, self._link, self._wanted = None, None, 0
        left, self._arrived = self._arrived, []
        return left

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
        self._bus.check_permitted(self._pull, self._acks)
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
            "batch": self._wish.batch,
            "expires": int(_PULL_LIFE * _NANOSECONDS),
            "idle_heartbeat": int(_HEARTBEAT * _NANOSECONDS),
        }
        try:
            await client.publish(self._pull, json.dumps(request).encode(), reply=self._inbox)
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self._bus.where, type(exc).__name__) from exc
        self._wanted, self._asked_at = self._wish.batch, time.monotonic()

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


def _config(durable: str, wish: Wish, floor: int | None) -> dict[str, Any]:
    return {
        "durable_name": durable,
        "name": durable,
        "ack_policy": "explicit",
        "ack_wait": int(ACK_WAIT * _NANOSECONDS),
        "replay_policy": "instant",
        "max_deliver": -1,
        "max_ack_pending": wish.max_ack_pending,
        "headers_only": wish.headers_only,
        **({"filter_subject": wish.filter} if wish.filter else {}),
        **_start(wish.start, floor),
    }


def _start(start: Start, floor: int | None) -> dict[str, Any]:
    """Where delivery begins; who wanted all gets all again from a consumer that is made anew."""
    if start == "all":
        return {"deliver_policy": "all"}
    if floor is not None:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": floor + 1}
    if isinstance(start, datetime):
        when = start.astimezone(UTC).isoformat()
        return {"deliver_policy": "by_start_time", "opt_start_time": when}
    return {"deliver_policy": "new"}


def _notice(msg: Msg) -> Notice | None:
    """Read the ack subject: `$JS.ACK.` [domain, account,] stream, consumer, and five numbers."""
    tokens = msg.reply.split(".")
    if len(tokens) < 9 or tokens[1] != "ACK":
        return None
    first = 4 if len(tokens) == 9 else 6
    headers = msg.headers or {}
    return Notice(
        subject=msg.subject,
        sequence=int(tokens[first + 1]),
        type=headers.get("Flightlog-Type", ""),
        delivered=int(tokens[first]),
        reply=msg.reply,
        body=None if _SIZE in headers else msg.data,
    )


async def consumers(bus: NatsBus, stream: str) -> AsyncIterator[dict[str, Any]]:
    """The durable consumers of a stream, each as the server describes it."""
    seen = 0
    while True:
        query = json.dumps({"offset": seen}).encode()
        answered = await bus.api(f"CONSUMER.LIST.{stream}", query)
        rows = answered.get("consumers") or []
        for row in rows:
            if row["config"].get("durable_name"):
                yield row
        seen += len(rows)
        if not rows or seen >= answered.get("total", 0):
            return
