"""A URL to which each event is posted, with the headers of standardwebhooks.com."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping

import httpx

from flightlog import Delivery, FlightlogError

RETRY_AFTER_MOST = 3_600.0  # seconds that a receiver may put us off
_SECRET = "whsec_"  # noqa: S105  how a secret begins


class Webhook:
    """A 2xx answer means that the event was handled; anything else that it is to come again.

    Neither the URL nor what is answered is ever logged: both may hold secrets.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        headers: Mapping[str, str],
        key: bytes | None,
        timeout: float,
    ) -> None:
        """`key`, if there is one, signs each request; `timeout`: seconds for the whole answer."""
        self._client, self._url, self._headers, self._key = client, url, headers, key
        self._timeout = timeout

    async def take(self, delivery: Delivery) -> None:
        """Post a delivery, and settle it."""
        body = delivery.event.body
        headers = {**self._headers, **told(delivery)}
        headers |= signed(delivery.id, int(time.time()), body, key=self._key)
        posting = self._client.stream("POST", self._url, content=body, headers=headers)
        try:
            async with asyncio.timeout(self._timeout), posting as answer:
                if answer.is_success:
                    await delivery.ack()
                else:
                    after = wait(answer.headers.get("retry-after", ""))
                    await delivery.fail(f"HTTP {answer.status_code}", after=after)
        except httpx.HTTPError as exc:
            await delivery.fail(type(exc).__name__)
        except TimeoutError:
            await delivery.fail(f"no answer in {self._timeout:g} s")


def check(url: str) -> None:
    """Raise `FlightlogError` for what is no URL to post to; it does not repeat it."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        parts = httpx.URL("")
    if parts.scheme not in ("http", "https") or not parts.host:
        raise FlightlogError("a webhook's URL begins with https:// or http:// and names a host")


def told(delivery: Delivery) -> dict[str, str]:
    """What a receiver learns of a delivery before it reads the body."""
    event = delivery.event
    return {
        "content-type": "application/json",
        "flightlog-session": event.session_id,
        "flightlog-seq": str(event.seq),
        "flightlog-type": event.type.encode("ascii", "backslashreplace").decode(),
        "flightlog-attempt": str(delivery.attempt),
    }


def signed(id: str, now: int, body: bytes, *, key: bytes | None) -> dict[str, str]:
    """The webhook's headers: the delivery's id, the time, and a signature of both and the body."""
    headers = {"webhook-id": id, "webhook-timestamp": str(now)}
    if key is not None:
        content = f"{id}.{now}.".encode() + body
        digest = hmac.digest(key, content, hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def key_of(secret: str) -> bytes:
    """The key that a secret stands for; raises `FlightlogError`, which does not repeat it."""
    try:
        return base64.b64decode(secret.removeprefix(_SECRET), validate=True)
    except binascii.Error:
        raise FlightlogError(f"a webhook's secret is {_SECRET} and base64") from None


def wait(retry_after: str) -> float:
    """Seconds that a receiver asks for; dates and nonsense are left to our own pauses."""
    return min(float(retry_after), RETRY_AFTER_MOST) if retry_after.isdecimal() else 0.0
