"""A model call, from model_request to model_response; what it sends is stored by reference."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from msgspec import DecodeError, Raw

from flightlog import context
from flightlog.blobs.spill import THRESHOLD
from flightlog.bus.protocol import Bus
from flightlog.errors import CallRefused, InvalidValue
from flightlog.event import Event
from flightlog.messages import providers
from flightlog.messages.provider import Provider
from flightlog.running.journal import UNRECORDABLE, Journal
from flightlog.step import CallModel
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.payload import ModelMessages, ModelRequest, ModelResponse, Purpose

_MAIN = "main"  # among the journal's starts: a main call whose model_request is not acked


class Requesting:
    """One model call, for harnesses that stream.

    `async with session.requesting(request) as r: await r.progress(chunk); r.response(message)`.
    Leaving the block by an exception records the error and raises.
    """

    def __init__(
        self,
        journal: Journal,
        progress: Callable[[Any], Any],
        request: Mapping[str, Any],
        *,
        purpose: Purpose,
        provider: str | None,
    ) -> None:
        self._journal, self._progress, self.request = journal, progress, request
        self.purpose: Purpose = purpose
        self._provider = journal.state.provider if provider is None else provider
        self._seq = 0
        self._response: ModelResponse | None = None
        self._originals: dict[str, Any] = {}
        self.message: Any = None

    async def progress(self, chunk: Any) -> None:
        """Show a delta before it is stored; never stored, never read by a resume."""
        await self._progress(chunk)

    def response(self, message: Any) -> None:
        """The model's final message, in the provider's form; recorded when the block is left."""
        journal, form = self._journal, providers.get(self._provider)
        stored = journal.pack(message, "the model's message")
        self.message = carry.unpack(stored)
        if journal.redact is not None:
            self._originals = _changed(carry.pack(message), stored, form)
        facts = form.read_response(self.message)
        self._response = ModelResponse(
            message=stored, usage=facts.usage, stop=facts.stop, cut=list(self._originals)
        )

    async def __aenter__(self) -> Self:
        journal = self._journal
        if self.purpose == "side":
            self._seq = (await self._start()).seq
            return self
        open_before = journal.state.open_request
        await journal.quiet()
        if journal.state.open_request is not None or _MAIN in journal.starting:
            raise CallRefused(journal.session, "a model call is open already")
        if open_before is not None and not isinstance(journal.state.next, CallModel):
            raise CallRefused(journal.session, "it was answered meanwhile; see what is next")
        self._seq = (await self._start(_MAIN)).seq
        return self

    async def _start(self, name: str | None = None) -> Event:
        failed = ModelResponse(error="CancelledError")
        return await self._journal.begin(self._recorded(), failed, name=name)

    async def _recorded(self) -> Event:
        """Append the request, and before it what it has no room for."""
        journal, asked = self._journal, self._referring()
        if journal.is_crowded(ModelMessages(messages=asked.rest)):
            for part in context.ahead(asked, most=THRESHOLD):
                await journal.record(part)
            asked = self._referring()
        return await journal.record(asked)

    def _referring(self) -> ModelRequest:
        return context.refer(
            self._journal.state,
            self.request,
            purpose=self.purpose,
            provider=self._provider,
            redact=self._journal.redact,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        journal = self._journal
        if journal.halted:
            if exc is None:
                raise journal.why
        elif isinstance(exc, asyncio.CancelledError):
            failed = ModelResponse(error=type(exc).__name__)
            await journal.shielded(journal.record(failed, parent=self._seq))
        elif exc is None and self._response is not None:
            await journal.outlive(self._answered(self._response))
        elif exc is None or isinstance(exc, Exception):  # else the process is going down
            await journal.outlive(self._failed(exc))

    async def _answered(self, response: ModelResponse) -> None:
        try:
            event = await self._journal.record(response, parent=self._seq)
        except UNRECORDABLE as exc:
            await self._failed(exc)
            raise
        for call_id, arguments in self._originals.items():
            self._journal.originals[event.seq, call_id] = arguments

    async def _failed(self, exc: BaseException | None) -> None:
        name = type(exc).__name__ if exc is not None else "NoResponse"
        await self._journal.record(ModelResponse(error=name), parent=self._seq)


def _changed(original: Raw, stored: Raw, form: Provider) -> dict[str, Any]:
    """The arguments that redaction changed, by call id; they stay in memory only."""
    kept = {call.call_id: bytes(call.input) for call in form.reply(stored).calls}
    return {
        call.call_id: carry.unpack(call.input)
        for call in form.reply(original).calls
        if kept.get(call.call_id) != bytes(call.input)
    }


async def run(journal: Journal, asked: Requesting, call: Callable[..., Any]) -> Any:
    """Make the model call and return the recorded message; its error is recorded and raised."""
    async with asked:
        asked.response(await journal.run(call, dict(asked.request)))
    return asked.message


async def say_progress(bus: Bus, tenant: str, journal: Journal, chunk: Any) -> None:
    """Send a delta to whoever watches; core NATS, not stored."""
    subject = names.progress_subject(tenant, journal.session, prefix=bus.layout.prefix)
    await bus.say(subject, bytes(journal.pack(chunk, "progress")))


def read_progress(body: bytes) -> Any:
    """A delta as it was said; None for what is none."""
    try:
        return carry.unpack(Raw(body))
    except (DecodeError, InvalidValue, UnicodeDecodeError, RecursionError):
        return None
