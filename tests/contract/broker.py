"""A raw connection to JetStream, for tests of what the design rests on."""

import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from flightlog.wire import layout

SUBJECT = "flightlog.v1.0.acme.one.live"
OTHER = "flightlog.v1.0.acme.two.live"
STREAM = "FLIGHTLOG_0"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class Broker:
    """A raw connection to a server that holds one log stream."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def api(self, verb: str, query: object) -> dict[str, Any]:
        reply = await self.client.request(f"$JS.API.{verb}", json.dumps(query).encode(), timeout=5)
        found: dict[str, Any] = json.loads(reply.data)
        return found

    async def make(self, **changes: object) -> None:
        made = await self.api(f"STREAM.CREATE.{STREAM}", layout.log_configs(1)[0] | changes)
        assert "error" not in made, made

    async def publish(
        self, subject: str = SUBJECT, body: bytes = b"x", *, headers: dict[str, str] | None = None
    ) -> Any:
        reply = await self.client.request(subject, body, timeout=5, headers=headers)
        return json.loads(reply.data or b"null")

    async def expect(self, sequence: object, subject: str = SUBJECT, body: bytes = b"x") -> Any:
        return await self.publish(subject, body, headers={EXPECTED: str(sequence)})

    async def batch(self, size: int, expected: int, *, id: str, skip: int = 0) -> Any:
        """An atomic batch as section 4 writes it; `skip` leaves that number out."""
        answer: Any = None
        for n in range(1, size + 1):
            headers = {"Nats-Batch-Id": id, "Nats-Batch-Sequence": str(n)}
            if n == 1:
                headers[EXPECTED] = str(expected)
            if n == size:
                headers["Nats-Batch-Commit"] = "1"
            if n != skip:
                answer = await self.publish(body=b"%d" % n, headers=headers)
        return answer

    async def bodies(self, subject: str = SUBJECT) -> list[bytes]:
        found: list[bytes] = []
        sequence = 0
        while True:
            query = {"seq": sequence + 1, "next_by_subj": subject}
            reply = await self.direct(query)
            if (reply.headers or {}).get("Status") == "404":
                return found
            sequence = int((reply.headers or {})["Nats-Sequence"])
            found.append(reply.data)

    async def direct(self, query: object) -> Msg:
        asked = json.dumps(query).encode()
        return await self.client.request(f"$JS.API.DIRECT.GET.{STREAM}", asked, timeout=5)

    async def direct_batch(self, query: object) -> list[Msg]:
        """All replies to a batched direct get, the closing 204 included."""
        inbox = self.client.new_inbox()
        heard = await self.client.subscribe(inbox)
        asked = json.dumps(query).encode()
        await self.client.publish(f"$JS.API.DIRECT.GET.{STREAM}", asked, reply=inbox)
        replies = [await heard.next_msg(timeout=5)]
        while "Status" not in (replies[-1].headers or {}):
            replies.append(await heard.next_msg(timeout=5))
        await heard.unsubscribe()
        return replies


def refused(answer: Any, code: int) -> str:
    """The description of a refusal with this code."""
    assert answer.get("error", {}).get("err_code") == code, answer
    return str(answer["error"]["description"])
