"""A session: what a harness holds while it runs an agent."""

import asyncio
import contextlib
import inspect
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from flightlog import clock
from flightlog.blobs.blob import Blobs
from flightlog.blobs.source import Source
from flightlog.bus.protocol import Bus
from flightlog.errors import BusUnavailable, CallRefused, FlightlogError, InvalidValue
from flightlog.event import Event
from flightlog.running import calling, hooking, requesting, ruling
from flightlog.running import child as children
from flightlog.running.calling import Calling, Result
from flightlog.running.journal import Journal, OnEvent, check_fits
from flightlog.running.listener import Listener
from flightlog.running.opening import Opened, Wanted
from flightlog.running.requesting import Requesting
from flightlog.state import SessionState
from flightlog.step import Call, Ended
from flightlog.tool import Tools, policies_of, policy, policy_of
from flightlog.wire import payload as payloads
from flightlog.wire.chunk import Blob
from flightlog.wire.payload import Effect, OnResume, Policy, Purpose

Origin = Literal["human", "schedule", "peer", "system"]
Status = Literal["completed", "failed", "cancelled"]

_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = ("session_", "seal", "tombstone")


class Session:
    """One logical agent run, opened by this process. Made by `Log.session`.

    Every recording call returns after the broker's ack. They raise `Fenced` once another writer
    owns the session (never retry), `BusUnavailable` after the deadline (what was sent stays
    queued), `SessionEnded`, `LogFull`, `TooLarge` and `InvalidValue`.
    """

    def __init__(
        self, bus: Bus, tenant: str, journal: Journal, opened: Opened, opens: "Opens"
    ) -> None:
        self._bus, self._tenant, self._journal, self._opened = bus, tenant, journal, opened
        self._opens = opens
        self._naming = asyncio.Lock()
        self._blobs = Blobs(bus, tenant, journal.session)
        self.listener = Listener(bus, tenant, journal)
        self.id = journal.session
        self.replaying = True

    @property
    def state(self) -> SessionState:
        """What the log folds to now; holds nothing that is not acked."""
        return self._journal.state

    @property
    def key(self) -> str | None:
        """The key under which the session was opened or made."""
        return self.state.key

    @property
    def resumed_from(self) -> tuple[int | None, int]:
        """The seq of the snapshot that opening used (None: none), and how many events it read."""
        used = self._opened.folded.used
        return (used.seq if used else None), self._opened.folded.tail

    @property
    def writes(self) -> bool:
        """Whether this process opened the session as its writer; not one that has ended."""
        return self._opened.appender is not None

    async def start(self) -> None:
        """Rule what was in flight, listen for others, take the inbox. Called by `Log.session`."""
        self.replaying = False
        if not self.writes:
            return
        await self.listener.start()
        await self._journal.record_owed(ruling.on_resume(self.state))
        await self.listener.take()

    async def append(self, type: str, payload: object, *, deadline: float | None = None) -> Event:
        """Append an event of any type: the primitive under all other calls.

        Types of the wire's table are checked against it; names beginning with `session_` are the
        session's own. `deadline` in seconds for this append alone; hours are fine.
        """
        if not _TYPE.fullmatch(type) or type.startswith(_RESERVED):
            raise InvalidValue("type", "it must be a short identifier that Flightlog does not use")
        raw = self._journal.pack(payload, type)
        check_fits(type, raw)
        return await self._journal.append(type, raw, deadline=deadline)

    async def user_message(
        self, content: Any, *, origin: Origin = "human", once: str | None = None
    ) -> None:
        """Record something said to the agent: a text, or the provider's own content blocks.

        With `once`, a restarted script says it only the first time.
        """
        packed = self._journal.pack(content, "content")
        said = payloads.UserMessage(content=packed, origin=origin, once=once)
        if once is None:
            await self._journal.record(said)
        elif not self.state.was_said(once):
            async with self._named():
                if not self.state.was_said(once):
                    await self._journal.record(said)

    async def model_call(
        self,
        request: Mapping[str, Any],
        *,
        call: Callable[..., Any],
        purpose: Purpose = "main",
        provider: str | None = None,
    ) -> Any:
        """Record the request, `call(**request)`, record and return the response, decoded.

        `call` may be sync (then it runs in a thread) or async. Its error is recorded and raised.
        `provider` names the format of request and response; without it that of the last main call.
        Calls with `purpose="side"` (titles, guards) never enter the context. A second open main
        call raises `CallRefused`.
        """
        asked = self.requesting(request, purpose=purpose, provider=provider)
        return await requesting.run(self._journal, asked, call)

    def requesting(
        self,
        request: Mapping[str, Any],
        *,
        purpose: Purpose = "main",
        provider: str | None = None,
    ) -> Requesting:
        """The two-step form of `model_call`, for harnesses that stream."""
        return Requesting(self._journal, self.progress, request, purpose=purpose, provider=provider)

    async def tool_call(
        self,
        call: Call | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        run: Callable[..., Any],
        call_id: str | None = None,
        on_resume: OnResume | None = None,
        effect: Effect | None = None,
    ) -> Result:
        """Record the call, `run(**arguments)`, record and return the result, decoded.

        A tool's exception becomes a result with outcome `error` and is returned. A call whose
        result is in the log is not run again. A call without a model's announcement is given by
        name, arguments and a `call_id` that is new, or that of the very same call.
        """
        asked = self._call(call, arguments, call_id)
        policy = self._policy(asked.name, run, on_resume, effect)
        return await calling.run(self._journal, asked, run, policy)

    def calling(
        self,
        call: Call | str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
        on_resume: OnResume | None = None,
        effect: Effect | None = None,
    ) -> Calling:
        """The two-step form of `tool_call`, for harnesses that own their executor."""
        asked = self._call(call, arguments, call_id)
        policy = self._policy(asked.name, None, on_resume, effect)
        return Calling(self._journal, asked, policy, once=None)

    def _call(
        self, call: Call | str, arguments: Mapping[str, Any] | None, call_id: str | None
    ) -> Call:
        if isinstance(call, Call):
            return call
        if call_id is None:
            raise CallRefused(self.id, f"a call of {call} that no model announced needs a call_id")
        return calling.unannounced(self._journal, call, dict(arguments or {}), call_id)

    def _policy(
        self,
        name: str,
        run: Callable[..., Any] | None,
        on_resume: OnResume | None,
        effect: Effect | None,
    ) -> Policy:
        declared = calling.policy_for(self._journal, name, policy_of(run))
        return policy(on_resume or declared.on_resume, effect or declared.effect)

    async def effect(
        self,
        name: str,
        run: Callable[..., Any],
        *,
        on_resume: OnResume | None = None,
    ) -> Any:
        """Run something once per session, whatever restarts, and return what it returned then.

        If the process dies inside it, the policy rules (undeclared: a person is asked). Its error
        is recorded and raised as `EffectFailed`, the first time and ever after.
        """
        call = calling.unannounced(self._journal, name, {}, f"effect:{name}")
        policy = self._policy(name, run, on_resume, None)
        result = await calling.run(self._journal, call, run, policy, once=name)
        if not result.ok:
            raise EffectFailed(self.id, name, result)
        return result.output

    async def value(self, name: str, make: Callable[[], Any]) -> Any:
        """A value that is not deterministic: recorded the first time, returned ever after."""
        if self.state.value(name) is None:
            async with self._named():
                if self.state.value(name) is None:
                    made = make()
                    packed = self._journal.pack(
                        await made if inspect.isawaitable(made) else made, f"value {name}"
                    )
                    await self._journal.record(payloads.ValueRecorded(name=name, value=packed))
        return await self._journal.unpacked(self.state.value(name) or payloads.NULL)

    @contextlib.asynccontextmanager
    async def _named(self) -> AsyncGenerator[None]:
        """One at a time, with what was given up but may be stored yet already in the state."""
        async with self._naming:
            await self._journal.quiet()
            yield

    async def now(self, name: str) -> datetime:
        """The time when this was first asked for under `name`."""
        stamp = await self.value(name, lambda: clock.now().isoformat())
        return datetime.fromisoformat(stamp)

    async def uuid(self, name: str) -> str:
        """A random UUID, the same ever after."""
        text: str = await self.value(name, lambda: str(uuid.UUID(int=clock.bits(128), version=4)))
        return text

    async def random(self, name: str) -> float:
        """A random number in [0, 1), the same ever after."""
        number: float = await self.value(name, clock.fraction)
        return number

    async def hook(
        self, name: str, event: Any, *, run: Callable[..., Any], reason: str | None = None
    ) -> Any:
        """Record a hook's call and decision, and return the decision, decoded."""
        return await hooking.run(self._journal, name, event, run, reason=reason)

    @contextlib.asynccontextmanager
    async def child(
        self,
        call: Call | None = None,
        *,
        call_id: str | None = None,
        name: str | None = None,
        harness_version: str | None = None,
        labels: Mapping[str, str] | None = None,
        tools: Tools = (),
        on_event: OnEvent | None = None,
    ) -> AsyncGenerator["Session"]:
        """Open the session of a sub-agent, from inside the tool call that it works for.

        A call has one child, which is found again when the call is run again: declare such a tool
        `on_resume="rerun"`. It may have ended then; its result is in `state`. By `call_id` alone
        it is the call of that id that was started last. Without a call, `name` tells children
        apart. When the parent is stopped, so is the child. Raises as `Log.session` does.
        """
        self._journal.check()
        origin = children.parent_of(self._journal, call, call_id, name)
        version = self.state.harness_version if harness_version is None else harness_version
        wanted = Wanted(
            tenant=self._tenant,
            id="",
            made_by=None,
            key=children.key_of(origin),
            labels=dict(labels or {}),
            policies=policies_of(tools),
            harness_version=version or "",
            reopen=False,
            parent=children.encoded(origin),
        )
        async with self._opens(wanted, on_event) as opened:
            with children.under(self._journal, opened._journal):  # noqa: SLF001  # of this class
                yield opened

    async def checkpoint(self, data: Any, *, label: str | None = None) -> None:
        """Record the harness' own data; `state.saved` is that of the last `state.checkpoint`."""
        packed = self._journal.pack(data, "checkpoint")
        await self._journal.record(payloads.Checkpoint(label=label, data=packed))

    async def attach(self, source: Source) -> Blob:
        """Store bytes, a binary file or what yields bytes, up to 1 GiB, beside the log.

        Memory is bounded. What is returned may stand anywhere in a payload of this session, and is
        read by `Log.blob`; until an event refers to it, it may be collected once the session is
        left, as what is left of an `attach` that failed. Raises `InvalidValue` for what gives no
        bytes, `TooLarge`, `LogFull`, and `BusUnavailable` if a part is not stored within 30 s.
        """
        self._journal.check()
        blob = await self._blobs.write(source)
        self._journal.know(blob)
        return blob

    async def compact(self, summary: Any, *, keep_from: int) -> None:
        """Replace the context before the event with seq `keep_from` by a summary."""
        packed = self._journal.pack(summary, "summary")
        await self._journal.record(payloads.Compact(summary=packed, keep_from=keep_from))

    async def progress(self, chunk: Any) -> None:
        """Show something that need not be kept: core NATS, never stored, never read by a resume."""
        await requesting.say_progress(self._bus, self._tenant, self._journal, chunk)

    async def end(
        self, status: Status = "completed", *, result: Any = None, error: str | None = None
    ) -> None:
        """End the session; further appends raise `SessionEnded`."""
        packed, why = self._journal.pack(result, "result"), self._journal.text(error)
        ended = payloads.SessionEnded(status=status, result=packed, error=why)
        await self._journal.end(ended)

    def halt(self) -> None:
        """Cancel what runs and leave it in flight, as `suspend` does before it records anything."""
        self._journal.halt()

    async def suspend(self, reason: str = "suspended") -> None:
        """Stop the work, leave its calls in flight, and record that the session waits. Idempotent.

        Running calls raise `Suspended`, and so does all that would append after it.
        """
        said = self._journal.text(reason) or ""
        await self._journal.suspend(payloads.SessionSuspended(reason=said))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the inbox or another task has changed `state.next`; False after `timeout`.

        False at once in a session that has ended. Raises `Suspended` or `Fenced` when the work here
        is over.
        """
        journal, before = self._journal, self.state.next
        if isinstance(before, Ended):
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                with contextlib.suppress(BusUnavailable):
                    await self.listener.take()
                while self.state.next == before:
                    if journal.stopped is not None:
                        raise journal.stopped
                    journal.changed.clear()
                    await journal.changed.wait()
        return self.state.next != before

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Record session_suspended, unless it ended, was suspended, or is not ours any more."""
        try:
            await self.listener.close()
        finally:
            await self._journal.leave("closed" if kind is None else kind.__name__)


Opens = Callable[[Wanted, OnEvent | None], contextlib.AbstractAsyncContextManager[Session]]


class EffectFailed(FlightlogError):
    """An effect that was recorded as failed; it is not run again."""

    def __init__(self, session: str, name: str, result: Result) -> None:
        self.session, self.name, self.result = session, name, result
        super().__init__(f"effect {name} of session {session} ended as {result.outcome}")
