"""What is known of a session after an event: the value that `flightlog.state` folds a log into."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from flightlog import calls as calling
from flightlog.blobs import held
from flightlog.blobs.held import Held
from flightlog.calls import Calls, CallState
from flightlog.errors import BlobCorrupt, BlobMissing
from flightlog.lineage import Lineage
from flightlog.messages import edit, params, providers, values, view
from flightlog.messages.params import Earlier
from flightlog.messages.provider import Provider
from flightlog.messages.segment import Entries, Sent
from flightlog.names import Names
from flightlog.step import (
    AwaitUser,
    Call,
    CallModel,
    Decide,
    Ended,
    RunTools,
    Step,
    idempotency_key,
)
from flightlog.usage import Usage
from flightlog.wire import carry, stand_in
from flightlog.wire.chunk import Blob
from flightlog.wire.payload import NULL, Policy

Status = Literal["new", "running", "suspended", "completed", "failed", "cancelled"]
ENDED = frozenset({"completed", "failed", "cancelled"})


@contextmanager
def _uncollected() -> Generator[None]:
    """Values that all stay are no news for the collector: 20 of 65 ms for 10,000 messages."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Mark(Struct, frozen=True):
    """The last checkpoint: the harness' own data."""

    label: str | None
    data: Raw
    seq: int


class SessionState(Struct, frozen=True, kw_only=True):
    """A session as its events up to `seq` tell it. Never changed: `apply` makes a new one.

    `calls` are those of the last main response, and older ones that have no result; `entries` is
    the context, of which `messages` makes what a provider takes. `owed` says that the model has
    something to answer once no call is open. `boundary` is the number of entries that the last main
    request sent: its response goes there. `params` and `order` are the last main request's fields,
    `of_provider` its provider, unset until one is not the default. `blobs` is set once an event
    refers to any; `held` are the contents that this process has at hand, in no snapshot; `ahead`
    the messages that events hold for the next request, while there are any; `earlier` are values
    that fields of requests had before, for those that come back or differ little.
    """

    session_id: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}
    policies: dict[str, Policy] = {}
    harness_version: str | None = None
    status: Status = "new"
    reason: str | None = None
    result: Raw = NULL
    seq: int = 0
    digest: str | None = None
    first_ts: str | None = None
    last_ts: str | None = None
    writer: int = 0
    writer_id: str | None = None
    writers: tuple[tuple[int, int], ...] = ()
    entries: Entries = Entries()
    boundary: int = 0
    rewritten: int = 0
    owed: bool = False
    open_request: int | None = None
    last_response: int | None = None
    calls: Calls = ()
    hooks: tuple[int, ...] = ()
    of_provider: str | UnsetType = UNSET
    model: str | None = None
    params: dict[str, Raw] = {}
    order: tuple[str, ...] = ()
    checkpoint: Mark | None = None
    values: Names[Raw] = Names()
    said: Names[int] = Names()
    effects: Names[str] = Names()
    recorded: Names[CallState] = Names()
    usage: Usage = Usage()
    counts: dict[str, int] = {}
    lineage: Lineage = Lineage()
    inbox: int = 0
    blobs: bool | UnsetType = UNSET
    held: Held | UnsetType = UNSET
    ahead: tuple[Sent, ...] | UnsetType = UNSET
    earlier: Earlier | UnsetType = UNSET

    @property
    def next(self) -> Step:
        """What the harness owes now."""
        if self.status in ENDED:
            return Ended(self.status)
        if ready := [call for call in self.calls if self._runs(call)]:
            return RunTools(self._calls(ready))
        if undecided := [call for call in self.calls if self._waits_for_a_person(call)]:
            return Decide(self._calls(undecided))
        if any(c.phase != "done" for c in self.calls if self._is_last(c)):
            return RunTools(())
        return CallModel() if self.owed else AwaitUser()

    @property
    def provider(self) -> str:
        """The provider of the last main request; the default one before there is any."""
        return providers.DEFAULT if self.of_provider is UNSET else self.of_provider

    def messages(self, provider: str | None = None) -> list[dict[str, Any]]:
        """The messages that a model call would send now, as new Python values, marks resolved.

        Raises `BlobMissing` or `BlobCorrupt` for one whose content could not be had.
        In the format of the last main request's provider, unless another is named: what others
        said is converted, and what only they can read (reasoning, server tools) is left out. System
        messages at the head of an `openai-chat` request are the request's own: pass them each time.
        """
        form = providers.get(self.provider if provider is None else provider)
        with _uncollected():
            found = values.of(self.entries, form, self._told)
        if found is not None:
            return found
        read = [carry.unpack(line) for line in self.lines(form)]
        return [message for message in read if isinstance(message, dict)]

    def lines(self, form: Provider) -> list[bytes]:
        """The messages, each as compact JSON, what lies in blobs in its place."""
        return [self.made_whole(line) for line in view.lines(self.entries, form)]

    def referable(self, form: Provider) -> list[bytes]:
        """The lines that a request may refer to: the messages, and those that wait for it.

        What lies in blobs is not in its place.
        """
        if self.ahead is UNSET:
            return view.lines(self.entries, form)
        entries = edit.with_ahead(self.entries, self.ahead, seq=self.seq, provider=form)
        return view.lines(entries, form)

    def made_whole(self, line: bytes) -> bytes:
        """A line with what lies in blobs in its place; without any, the same object."""
        return stand_in.made_whole(line, self._text)

    def known(self, param: str) -> list[Raw]:
        """The values of a request's field that are known, the last main request's first."""
        return params.known(self.params, self.earlier, param)

    def _told(self, line: bytes) -> Any:
        return carry.unpack(self.made_whole(line))

    def whole(self, raw: Raw) -> Raw:
        """JSON of the state's with its blobs in place; as it is where none were fetched."""
        return raw if self.held is UNSET else held.whole(raw, self._content)

    @property
    def saved(self) -> Any:
        """What the last checkpoint holds, as new Python values, marks resolved; None without."""
        return carry.unpack(self.whole(self.checkpoint.data)) if self.checkpoint else None

    def _text(self, blob: Blob, form: stand_in.Form) -> str:
        return held.shown(self._content(blob), form)

    def _content(self, blob: Blob) -> bytes:
        known = held.NOTHING if self.held is UNSET else self.held
        return known.get(str(self.session_id), blob)

    def call(self, announced_by: int | None, call_id: str) -> CallState | None:
        """A call that is open, of the last main response, or that no model announced."""
        known = calling.find(self.calls, announced_by, call_id)
        return known or (self.recorded.get(call_id) if announced_by is None else None)

    def effect(self, name: str) -> CallState | None:
        """The call that `once=name` recorded."""
        call_id = self.effects.get(name)
        return None if call_id is None else self.call(None, call_id)

    def was_said(self, name: str) -> bool:
        """Whether a user_message with `once=name` is in the log."""
        return self.said.get(name) is not None

    def value(self, name: str) -> Raw | None:
        """The value recorded under the name first."""
        return self.values.get(name)

    def is_stale(self, call: CallState) -> bool:
        """Whether the process that announced or started the call no longer writes."""
        return bool(self.writers) and call.seq < self.writers[-1][0]

    def _is_last(self, call: CallState) -> bool:
        return call.announced_by is not None and call.announced_by == self.last_response

    def _runs(self, call: CallState) -> bool:
        if call.announced_by is None or (call.cut and self.is_stale(call)):
            return False
        return self._is_ready(call) and self.loss(call) is None

    def _is_ready(self, call: CallState) -> bool:
        return call.phase == "rerun" or (call.phase == "announced" and self._is_last(call))

    def _waits_for_a_person(self, call: CallState) -> bool:
        return call.phase == "undecided" or (self._is_ready(call) and self.loss(call) is not None)

    def loss(self, call: CallState) -> str | None:
        """What is wrong with the blobs that hold a model's arguments: it can never be run then."""
        if self.held is UNSET or call.announced_by is None:
            return None
        try:
            for blob in held.inlined(held.references(call.arguments)):
                self._content(blob)
        except (BlobMissing, BlobCorrupt) as exc:
            return str(exc)
        return None

    def _calls(self, found: list[CallState]) -> tuple[Call, ...]:
        return tuple(
            Call(
                name=call.name,
                call_id=call.call_id,
                announced_by=call.announced_by,
                arguments=carry.unpack(self._had(call)),
                attempt=call.attempt + 1,
                idempotency_key=idempotency_key(self.session_id, call.announced_by, call.call_id),
            )
            for call in found
        )

    def _had(self, call: CallState) -> Raw:
        """The arguments, as they are stored where they can never be had again."""
        try:
            return self.whole(call.arguments)
        except (BlobMissing, BlobCorrupt):
            return call.arguments
