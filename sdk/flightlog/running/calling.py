"""A tool call, from tool_call to tool_result: recorded before it runs, never run twice."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Self

from msgspec import Struct

from flightlog import clock
from flightlog.blobs import held
from flightlog.calls import CallState, Ending
from flightlog.errors import CallRefused, NeedsDecision
from flightlog.event import Event
from flightlog.running.journal import UNRECORDABLE, Journal
from flightlog.step import Call, idempotency_key
from flightlog.tool import UNDECLARED
from flightlog.wire import carry
from flightlog.wire.payload import Outcome, Policy, ToolCall, ToolResult

CANCELLED_TEXT = "the call was cancelled; whether it took effect is unknown"


class Result(Struct, frozen=True):
    """How a tool call ended, as recorded. `output` is decoded from the log, the first time too."""

    outcome: Outcome
    output: Any

    @property
    def ok(self) -> bool:
        """Whether the tool returned."""
        return self.outcome == "ok"


class Calling:
    """One attempt of a call, for harnesses that own their executor.

    `async with session.calling(call) as attempt: attempt.result(value)`. Leaving the block by an
    exception records outcome `error` and raises; by a cancellation of the harness, `cancelled`.
    """

    def __init__(self, journal: Journal, call: Call, policy: Policy, *, once: str | None) -> None:
        self._journal, self.call, self._policy, self._once = journal, call, policy, once
        self._outcome: tuple[Outcome, Any] | None = None
        self.recorded: Result | None = None
        self._seq = 0
        self._began = 0.0

    @property
    def arguments(self) -> Any:
        """The call's arguments; the original ones while this process still holds them."""
        key = (self.call.announced_by, self.call.call_id)
        return self._journal.originals.get(key, self.call.arguments)

    def result(self, value: Any) -> None:
        """What the tool returned; recorded when the block is left."""
        self._outcome = ("ok", value)

    def error(self, exc: BaseException) -> None:
        """That the tool failed; recorded when the block is left."""
        self._outcome = ("error", _described(exc))

    async def __aenter__(self) -> Self:
        if recorded(self._journal, self.call) is not None:
            why = f"call {self.call.call_id} has a result already"
            raise CallRefused(self._journal.session, why)
        self._seq = (await self._start()).seq
        self._began = clock.elapsed()
        return self

    async def _start(self) -> Event:
        name = (self.call.announced_by, self.call.call_id)
        if name in self._journal.starting:
            raise CallRefused(self._journal.session, f"call {self.call.call_id} is being started")
        cancelled = self._ended("cancelled", CANCELLED_TEXT)
        start = self._journal.record(self._started())
        return await self._journal.begin(start, cancelled, name=name)

    def _started(self) -> ToolCall:
        call, arguments = self.call, self.arguments
        stored = self._journal.pack(arguments, f"arguments of {call.name}")
        cut = self._journal.redact is not None and bytes(stored) != bytes(
            carry.pack(arguments, where="arguments")
        )
        return ToolCall(
            name=call.name,
            call_id=call.call_id,
            announced_by=call.announced_by,
            attempt=call.attempt,
            arguments=stored,
            on_resume=self._policy.on_resume,
            effect=self._policy.effect,
            idempotency_key=call.idempotency_key,
            once=self._once,
            cut=cut,
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
            ended = self._ended("cancelled", CANCELLED_TEXT)
            await journal.shielded(journal.record(ended, parent=self._seq))
        elif exc is None or isinstance(exc, Exception):  # else the process is going down
            if exc is not None:
                self.error(exc)
            outcome = self._outcome or ("error", {"error": "NoResult"})
            await journal.outlive(self._close(*outcome))

    async def _close(self, outcome: Outcome, output: Any) -> None:
        """Record the result; one that cannot be recorded is an error for the model to see."""
        try:
            ended = self._ended(outcome, output)
            await self._journal.record(ended, parent=self._seq)
        except UNRECORDABLE as exc:
            ended = self._ended("error", _described(exc))
            await self._journal.record(ended, parent=self._seq)
        self.recorded = Result(ended.outcome, carry.unpack(ended.output))
        self._journal.originals.pop((self.call.announced_by, self.call.call_id), None)

    def _ended(self, outcome: Outcome, output: Any) -> ToolResult:
        resolved: Literal["run", "rerun"] = "rerun" if self.call.attempt > 1 else "run"
        return ToolResult(
            call_id=self.call.call_id,
            announced_by=self.call.announced_by,
            outcome=outcome,
            output=self._journal.pack(output, f"output of {self.call.name}"),
            resolved_by=resolved,
            duration=round(clock.elapsed() - self._began, 6) if self._began else None,
        )


async def run(
    journal: Journal,
    call: Call,
    work: Callable[..., Any],
    policy: Policy,
    *,
    once: str | None = None,
) -> Result:
    """Run a call and return its recorded result; a recorded one is returned without running."""
    if (known := recorded(journal, call)) is not None:
        return Result(known.outcome, await journal.unpacked(known.output))
    attempt = Calling(journal, call, policy, once=once)
    async with attempt:
        try:
            attempt.result(await journal.run(work, _named(attempt.arguments)))
        except Exception as exc:  # noqa: BLE001  # a failure is a result: gather survives it
            if journal.halted:  # its outcome is not recorded: the call stays in flight
                raise journal.why from (exc if exc is not journal.why else None)
            attempt.error(exc)
    if attempt.recorded is None:
        raise journal.why
    return attempt.recorded


def recorded(journal: Journal, call: Call) -> Ending | None:
    """The call's result as it is stored, if the log has one.

    Raises when the call may not be started now.
    """
    known = journal.state.call(call.announced_by, call.call_id)
    match known:
        case CallState(phase="done"):
            return known.result
        case CallState(phase="undecided"):
            raise NeedsDecision(journal.session, call.call_id, call.announced_by)
        case CallState(phase="running" | "ruled"):
            why = f"call {call.call_id} was started and has no result yet"
            raise CallRefused(journal.session, why)
        case None if call.announced_by is not None:
            raise CallRefused(journal.session, f"call {call.call_id} is of an earlier turn")
        case _:
            return None


def unannounced(journal: Journal, name: str, arguments: Any, call_id: str) -> Call:
    """A call that no model announced. Its id must be new, or the very same call's."""
    packed = journal.pack(arguments, f"arguments of {name}")
    known = journal.state.call(None, call_id)
    if known is not None and not (known.name == name and held.is_same(known.arguments, packed)):
        raise CallRefused(journal.session, f"call id {call_id} was used for another call")
    return Call(
        name=name,
        call_id=call_id,
        announced_by=None,
        arguments=arguments,
        attempt=known.attempt + 1 if known is not None else 1,
        idempotency_key=idempotency_key(journal.session, None, call_id),
    )


def policy_for(journal: Journal, name: str, declared: Policy | None) -> Policy:
    """What the call site, the tool or the session declared, in this order."""
    return declared or journal.state.policies.get(name) or UNDECLARED


def _named(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def _described(exc: BaseException) -> dict[str, str]:
    try:
        message = str(exc)
    except Exception as why:  # noqa: BLE001  # of a tool's own class: it failed all the same
        message = f"its message cannot be had ({type(why).__name__})"
    return {"error": type(exc).__name__, "message": message}
