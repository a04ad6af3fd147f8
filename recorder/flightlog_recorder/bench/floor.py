"""What bare nats-py does: the floor that Flightlog's numbers are compared with."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import nats
from nats.aio.msg import Msg

from flightlog.bus.nats_bus import EXPECTED, PAGE_BYTES, PAGE_MESSAGES
from flightlog.wire import subject as names
from flightlog.wire.layout import Layout

WAIT = 10.0  # seconds for one answer


class Floor:
    """A bare nats-py connection, doing by hand what the SDK does for its callers."""

    def __init__(self, client: Any, layout: Layout, tenant: str) -> None:
        self._client, self._js = client, client.jetstream(timeout=WAIT)
        self._layout, self._tenant = layout, tenant

    @classmethod
    async def connect(cls, url: str, layout: Layout, tenant: str) -> "Floor":
        """Connect with nats-py's own settings."""
        return cls(await nats.connect(url, pending_size=0), layout, tenant)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    def subject(self) -> str:
        """The `live` subject of a session that nobody has."""
        return names.log_subject(self._tenant, names.mint(), "live", prefix=self._layout.prefix)

    async def singles(self, bodies: Sequence[bytes]) -> None:
        """Publish one after the other on a new subject, each with its ack and expectation."""
        subject, last = self.subject(), 0
        for n, body in enumerate(bodies, 1):
            ack = await self._js.publish(subject, body, headers=_headers(n, last))
            last = ack.seq

    async def batches(self, bodies: Sequence[bytes], *, size: int) -> None:
        """Publish atomic batches of `size` on a new subject, one after the other."""
        subject, last = self.subject(), 0
        for start in range(0, len(bodies), size):
            last = await self._batch(subject, bodies[start : start + size], start, last)

    async def _batch(self, subject: str, bodies: Sequence[bytes], first: int, last: int) -> int:
        batch = uuid4().hex
        for n, body in enumerate(bodies, 1):
            headers = _headers(first + n, last if n == 1 else None)
            headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(n)}
            if n < len(bodies):
                await self._client.publish(subject, body, headers=headers)
            else:
                headers["Nats-Batch-Commit"] = "1"
                reply = await self._client.request(subject, body, timeout=WAIT, headers=headers)
                return int(json.loads(reply.data)["seq"])
        return last

    async def pipelined(self, bodies: Sequence[bytes], *, subjects: int) -> None:
        """`publish_async` on so many new subjects at once, each waiting for its own acks."""

        async def one() -> None:
            subject, last = self.subject(), 0
            for n, body in enumerate(bodies, 1):
                future = await self._js.publish_async(subject, body, headers=_headers(n, last))
                last = (await future).seq

        await asyncio.gather(*(one() for _ in range(subjects)))

    async def read(self, stream: str, subject: str, *, start: int = 0) -> int:
        """Read a subject by batched direct gets, as many messages as there are."""
        count = 0
        while True:
            taken, last, pending = await self._page(stream, subject, start)
            count += taken
            if not pending:
                return count
            start = last + 1

    async def uncovered(self, stream: str, durable: str) -> int:
        """Messages that a consumer has not acknowledged, delivered or not."""
        found = await self._js.consumer_info(stream, durable)
        return int(found.num_pending) + int(found.num_ack_pending)

    async def _page(self, stream: str, subject: str, start: int) -> tuple[int, int, int]:
        query = {
            "seq": start,
            "next_by_subj": subject,
            "batch": PAGE_MESSAGES,
            "max_bytes": PAGE_BYTES,
        }
        taken: list[int] = []
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def took(msg: Msg) -> None:
            headers = msg.headers or {}
            if status := headers.get("Status"):
                done.set_result(int(headers["Nats-Num-Pending"]) if status == "204" else 0)
            else:
                taken.append(int(headers["Nats-Sequence"]))

        inbox = self._client.new_inbox()
        subscription = await self._client.subscribe(inbox, cb=took)
        await self._client.publish(
            f"$JS.API.DIRECT.GET.{stream}", json.dumps(query).encode(), reply=inbox
        )
        pending = await asyncio.wait_for(done, WAIT)
        await subscription.unsubscribe()
        return len(taken), taken[-1] if taken else start, pending


def _headers(n: int, expected: int | None) -> dict[str, str]:
    ours = {"Flightlog-Type": "checkpoint", "Flightlog-Seq": str(n), "Flightlog-Writer": "1"}
    return ours if expected is None else {**ours, EXPECTED: str(expected)}
