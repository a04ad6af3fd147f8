"""A connection to NATS that mends itself, and says in our words what nats-py and the server say."""

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Self

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from flightlog.bus.client import Client
from flightlog.bus.protocol import Heard, Message, Missed
from flightlog.errors import BusUnavailable, LayoutRefused, NotPermitted
from flightlog.wire import subject as names

REQUEST_TIMEOUT = 5.0  # seconds for one answer; deadlines above are made of several
CONNECT_TIMEOUT = 5.0
PING_INTERVAL = 10  # seconds; nats-py's 120 takes minutes to notice a half-open link
RECONNECT_WAIT = 0.2  # seconds
QUIET = 1.0  # seconds after the last answer of many until no more is waited for
_CLOSE_TIMEOUT = 2.0
_DEFAULT_PAYLOAD = 1 << 20  # bytes, nats-server's own default, until it has said what it takes

# nats-py hands errors out in lower case, subjects included.
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
_UNWELCOME = re.compile(r"authorization|authentication")

_log = logging.getLogger("flightlog.bus.protocol")


class Listening:
    """A core subscription; it follows its link over reconnects and rebuilds."""

    def __init__(self, link: "Link", subject: str, heard: Heard, missed: Missed) -> None:
        self._link, self.subject, self.heard, self.missed = link, subject, heard, missed
        self.subscription: Subscription | None = None

    async def close(self) -> None:
        """Hear no more. Idempotent."""
        self._link.listening.discard(self)
        if self.subscription is not None:
            with contextlib.suppress(nats.errors.Error):
                await self.subscription.unsubscribe()


class Link:
    """One connection to NATS; reconnects without end, and is rebuilt when nats-py closes it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._client: Client | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._rebuilding = asyncio.Lock()
        self._last_error: Exception | None = None
        self._denied: set[tuple[str, str]] = set()
        self.listening: set[Listening] = set()
        self.closed = False

    @property
    def max_payload(self) -> int:
        """The largest body plus headers the server takes, in bytes."""
        return self._client.max_payload if self._client else _DEFAULT_PAYLOAD

    @property
    def where(self) -> str:
        """The servers' addresses, without credentials: for messages."""
        return ", ".join(url.rsplit("@", 1)[-1] for url in self._options["servers"])

    @property
    def connected(self) -> bool:
        """Whether the link is up now."""
        return self._client is not None and self._client.is_connected

    @property
    def server_version(self) -> tuple[int, ...]:
        """The connected server's version."""
        return self._client.server_version if self._client else (0, 0, 0)

    async def open(self, timeout: float) -> None:
        """Connect, or raise `BusUnavailable` or `NotPermitted` within `timeout` seconds."""
        client = Client()
        self._last_error = None
        connecting = self._connecting = asyncio.ensure_future(self._connect(client))
        try:
            await asyncio.wait({connecting}, timeout=timeout)
        finally:
            if not _succeeded(connecting):
                connecting.cancel()
                await _close(client)
        if not _succeeded(connecting):
            raise self._unreachable() from self._last_error
        self._client = client
        for each in list(self.listening):
            await self._subscribe(client, each)
            each.missed()

    async def _connect(self, client: Client) -> None:
        async def lost() -> None:
            client.drop_transport()
            client.give_up_requests(nats.errors.ConnectionReconnectingError())

        async def back() -> None:
            for each in list(self.listening):
                each.missed()

        async def erred(exc: Exception) -> None:
            self._on_error(client, exc)

        try:
            await client.connect(
                error_cb=erred,
                disconnected_cb=lost,
                closed_cb=lost,
                reconnected_cb=back,
                **self._options,
            )
        except (nats.errors.Error, OSError, ValueError) as exc:
            self._last_error = self._last_error or exc
            raise

    def _unreachable(self) -> Exception:
        reason = self._last_error
        if reason is not None and _is_unwelcome(reason):
            return NotPermitted(f"NATS at {self.where} refused the credentials")
        return BusUnavailable(self.where, _told(reason))

    def _on_error(self, client: Client, exc: Exception) -> None:
        text = str(exc).lower()
        if match := _VIOLATION.search(text):
            self._refused(client, match[1], match[2], exc)
        elif _is_final(exc) and self._connecting is not None:
            self._connecting.cancel()
        if self._last_error is None or _says_as_much(exc, self._last_error):
            self._last_error = exc
        _log.debug("nats-py reported %s", type(exc).__name__)

    def _refused(self, client: Client, verb: str, subject: str, exc: Exception) -> None:
        """Tell who waits for it, or, of what nobody waits for, the operator, once."""
        is_new = (verb, subject) not in self._denied
        self._denied.add((verb, subject))
        of_all = verb == "subscription"  # perhaps that of the answers
        if not client.give_up_requests(exc, subject=None if of_all else subject) and is_new:
            _log.warning("NATS refused us a %s: %s", verb, subject)

    def check_permitted(self, *prefixes: str) -> None:
        """Raise `NotPermitted` if we were refused to publish to a subject that begins so.

        For what is published without waiting for an answer.
        """
        for verb, subject in self._denied:
            if verb == "publish" and subject.startswith(tuple(map(str.lower, prefixes))):
                self._denied.discard((verb, subject))
                raise NotPermitted(f"NATS refused to let us publish to {subject}")

    async def client(self) -> Client:
        """The live client; a closed one (any unexpected -ERR closes it) is replaced first."""
        if self._client is None or self._client.is_closed:
            if self.closed:
                raise BusUnavailable(self.where, "this connection was closed")
            async with self._rebuilding:
                if self._client is None or self._client.is_closed:
                    await self.open(CONNECT_TIMEOUT)
        if self._client is None:
            raise BusUnavailable(self.where, "this connection was closed")
        return self._client

    async def close(self) -> None:
        """Close for good; nothing is flushed, as every append waits for its ack anyway."""
        self.closed = True
        if self._client is not None:
            await _close(self._client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        *,
        headers: bytes = b"",
        before: Sequence[bytes] = (),
        timeout: float = REQUEST_TIMEOUT,
    ) -> Msg:
        """One request and its answer, else `BusUnavailable`, or `NotPermitted` if so told.

        The frames `before` go ahead of it, unanswered.
        """
        if self._denied:
            self._denied.discard(("publish", subject.lower()))
        try:
            client = await self.client()
            return await client.ask(subject, body, timeout=timeout, headers=headers, before=before)
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            raise self._failure(subject, exc) from exc

    def _failure(self, subject: str, exc: Exception) -> Exception:
        if ("publish", subject.lower()) in self._denied:
            return NotPermitted(f"NATS refused to let us publish to {subject}")
        if isinstance(exc, nats.errors.MaxPayloadError):
            taken = f"NATS at {self.where} takes messages of {self.max_payload} bytes only"
            return LayoutRefused(taken, advice="raise its max_payload to 1 MiB")
        inbox = str(self._options["inbox_prefix"]).lower()
        if any(verb == "subscription" and to.startswith(inbox) for verb, to in self._denied):
            return NotPermitted(f"NATS refused to let us receive answers on {inbox}.>")
        return BusUnavailable(self.where, type(exc).__name__)

    async def read(self, subject: str, query: bytes) -> tuple[list[Message], Msg]:
        """One request, the stored messages it is answered with, and the status at their end."""
        if self._denied:
            self._denied.discard(("publish", subject.lower()))
        try:
            client = await self.client()
            return await client.ask_page(subject, query, timeout=REQUEST_TIMEOUT)
        except (nats.errors.Error, OSError, TimeoutError) as exc:
            raise self._failure(subject, exc) from exc

    async def listen(
        self, subject: str, heard: Heard, *, missed: Missed = lambda: None
    ) -> Listening:
        """Call `heard` for each core message on `subject`; raises `NotPermitted`.

        `missed` is called when the link is up again: what was said meanwhile was not heard.
        """
        listening = Listening(self, subject, heard, missed)
        self._denied.discard(("subscription", subject.lower()))
        await self._subscribe(await self.client(), listening)
        if ("subscription", subject.lower()) in self._denied:
            await listening.close()
            raise NotPermitted(f"NATS refused to let us listen to {subject}")
        self.listening.add(listening)
        return listening

    async def _subscribe(self, client: Client, listening: Listening) -> None:
        async def took(msg: Msg) -> None:
            # A consumer pushes to any subject, past its owner's permissions; the name stays true.
            if names.matches(listening.subject, msg.subject):
                await listening.heard(Message(msg.subject, 0, msg.data))

        try:
            listening.subscription = await client.subscribe(listening.subject, cb=took)
            await client.flush()
        except (nats.errors.Error, OSError) as exc:
            raise BusUnavailable(self.where, f"{type(exc).__name__} while subscribing") from exc

    async def ask_all(self, subject: str, heard: Heard, *, quiet: float = QUIET) -> int:
        """One request that each server answers by itself: call `heard` for every answer.

        Ends when none came for `quiet` seconds; returns how many there were. Raises `NotPermitted`,
        and `BusUnavailable` if nobody answers.
        """
        client, news, count = await self.client(), asyncio.Event(), 0

        async def took(message: Message) -> None:
            nonlocal count
            if message.body:  # else: nobody is there to answer
                count += 1
                await heard(message)
            news.set()

        inbox = client.new_inbox()
        listening = await self.listen(inbox, took)
        try:
            await client.publish(subject, b"", reply=inbox)
            await client.flush()
            self.check_permitted(subject)
            with contextlib.suppress(TimeoutError):
                while True:
                    await asyncio.wait_for(news.wait(), quiet if count else REQUEST_TIMEOUT)
                    news.clear()
        except (nats.errors.Error, OSError) as exc:
            raise self._failure(subject, exc) from exc
        finally:
            await listening.close()
        if not count:
            raise BusUnavailable(self.where, f"no server answers {subject}")
        return count

    async def say(self, subject: str, body: bytes) -> None:
        """Publish on core NATS; lost when the link is down."""
        with contextlib.suppress(nats.errors.Error, OSError, BusUnavailable):
            await (await self.client()).publish(subject, body)


def _is_unwelcome(exc: Exception) -> bool:
    return _UNWELCOME.search(str(exc).lower()) is not None


def _is_final(exc: Exception) -> bool:
    """Whether another try to connect ends the same way."""
    return _is_unwelcome(exc) or isinstance(exc, ssl.SSLCertVerificationError)


def _says_as_much(exc: Exception, before: Exception) -> bool:
    """Whether it tells as well as the one before why there is no connection.

    A server that wants our certificate says so and cuts the line: which is seen first is chance.
    """
    cut = isinstance(exc, ConnectionError | nats.errors.UnexpectedEOF)
    return not _is_final(before) and not (cut and isinstance(before, ssl.SSLError))


def _succeeded(connecting: "asyncio.Future[None]") -> bool:
    return connecting.done() and not connecting.cancelled() and connecting.exception() is None


async def _close(client: Client) -> None:
    with contextlib.suppress(Exception):  # nats-py raises ConnectionResetError and others
        await asyncio.wait_for(client.close(), _CLOSE_TIMEOUT)
    client.drop_transport()


def _told(reason: Exception | None) -> str:
    """Why there is no connection, in words; the text of other errors may quote an address."""
    match reason:
        case None | TimeoutError() | nats.errors.TimeoutError():
            return "nothing answers there"
        case ConnectionRefusedError():
            return "nothing listens there"
        case ssl.SSLCertVerificationError():
            return "its certificate is of no authority that we trust: name it by FLIGHTLOG_NATS_CA"
        case ssl.SSLError():
            return "no TLS: it may want a certificate of ours (FLIGHTLOG_NATS_CERT and _KEY)"
        case socket.gaierror():
            return "the host name is not known"
        case _:
            return f"{type(reason).__name__} while connecting"
