"""The payload table: what each type of event says, and the one decoder that reads it.

Values of authors (messages, arguments, outputs) are `Raw`: JSON as stored, decoded by `carry`.
Fields that a struct does not name stay in the event's `raw`.
"""

from typing import Literal

import msgspec
from msgspec import Raw, Struct

NULL = Raw(b"null")

OnResume = Literal["rerun", "fail", "ask"]
Effect = Literal["read", "write"]
Outcome = Literal["ok", "error", "unknown", "cancelled"]
Ruling = Literal["result", "rerun", "fail", "refused"]
Purpose = Literal["main", "side"]


class _Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Writer(_Payload, frozen=True, omit_defaults=False):
    """The one process that may append now: `number` is one higher than the last, `id` is random."""

    number: int
    id: str


class Policy(_Payload, frozen=True, omit_defaults=False):
    """What a tool declares about being run again."""

    on_resume: OnResume = "ask"
    effect: Effect = "write"


class CallRef(_Payload, frozen=True, omit_defaults=False):
    """A call's name: servers repeat call ids, so the announcing response's seq is part of it."""

    call_id: str
    announced_by: int | None = None


class SessionStarted(_Payload, frozen=True):
    """A session's first event."""

    writer: Writer
    key: str | None = None
    labels: dict[str, str] = {}
    policies: dict[str, Policy] = {}
    parent: Raw = NULL


class SessionResumed(_Payload, frozen=True):
    """A new writer owns the session from here on; older ones are fenced."""

    writer: Writer
    key: str | None = None
    labels: dict[str, str] = {}
    policies: dict[str, Policy] = {}
    in_flight: list[CallRef] = []
    snapshot: int | None = None


class SessionReopened(SessionResumed, frozen=True):
    """A new writer goes on with a session that had ended."""


class SessionSuspended(_Payload, frozen=True):
    """The writer left without ending the session."""

    reason: str = "closed"
    inbox: int | None = None


class SessionEnded(_Payload, frozen=True):
    """The session is over: completed, failed or cancelled."""

    status: Literal["completed", "failed", "cancelled"] = "completed"
    result: Raw = NULL
    error: str | None = None
    inbox: int | None = None


class SessionForked(_Payload, frozen=True):
    """The last event before a fork's seal; `seq` is the branch point in the source."""

    session: str
    seq: int
    digest: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}


class SessionImported(_Payload, frozen=True):
    """Where an imported session came from."""

    format: str
    id: str | None = None
    path: str | None = None
    hash: str | None = None
    earlier: str | None = None
    key: str | None = None
    labels: dict[str, str] = {}


class UserMessage(_Payload, frozen=True):
    """Something said to the agent."""

    content: Raw
    origin: Literal["human", "schedule", "peer", "system"] = "human"
    once: str | None = None
    inbox: int | None = None


class Context(_Payload, frozen=True, omit_defaults=False):
    """How a request's messages follow from the log; see `flightlog.context`."""

    upto: int
    digest: str
    edits: list[tuple[int, int]] = []
    view: str = "anthropic/1"
    marks: list[tuple[int, int, Raw]] = []


class ModelMessages(_Payload, frozen=True):
    """Messages that the next model_request sends and has no room for."""

    provider: str = "anthropic"
    messages: list[Raw] = []


class ModelRequest(_Payload, frozen=True):
    """A model call is about to be made. Stores only what the log does not already hold."""

    provider: str = "anthropic"
    purpose: Purpose = "main"
    model: str | None = None
    params: dict[str, Raw] = {}
    param_patches: dict[str, tuple[int, int, int, str]] = {}
    unset: list[str] = []
    order: list[str] | None = None
    context: Context | None = None
    rest: list[Raw] = []
    patches: list[tuple[int, int, int, str]] = []


class ModelResponse(_Payload, frozen=True):
    """What the model answered, in the provider's own JSON; `cut`: calls that redaction changed."""

    message: Raw = NULL
    usage: Raw = NULL
    stop: str | None = None
    error: str | None = None
    cut: list[str] = []


class ToolCall(_Payload, frozen=True):
    """A tool is about to run."""

    name: str
    call_id: str
    announced_by: int | None = None
    attempt: int = 1
    arguments: Raw = NULL
    on_resume: OnResume = "ask"
    effect: Effect = "write"
    idempotency_key: str = ""
    once: str | None = None
    cut: bool = False


class ToolResult(_Payload, frozen=True):
    """How a call ended; after `unknown` and `cancelled` its effect may or may not have happened."""

    call_id: str
    announced_by: int | None = None
    outcome: Outcome = "ok"
    output: Raw = NULL
    resolved_by: Literal["run", "rerun", "policy", "person"] = "run"
    duration: float | None = None


class HookCall(_Payload, frozen=True):
    """A hook is about to decide on an event."""

    hook: str
    event: Raw = NULL


class HookDecision(_Payload, frozen=True):
    """What the hook decided; its hook_call is `parent_seq`."""

    decision: Raw = NULL
    reason: str | None = None
    outcome: Literal["ok", "failed"] = "ok"


class DecisionRequested(_Payload, frozen=True):
    """A person must say what became of a call."""

    call: CallRef
    question: str = ""


class DecisionMade(_Payload, frozen=True):
    """A ruling on a call, by its policy or by a person; it covers the one start after it."""

    call: CallRef
    ruling: Ruling
    by: str
    reason: str | None = None
    output: Raw = NULL
    inbox: int | None = None


class InboxRefused(_Payload, frozen=True):
    """An inbox item that could not be read; recorded so that it is not taken again."""

    inbox: int
    why: str


class ValueRecorded(_Payload, frozen=True):
    """A value that is not deterministic, recorded once and returned ever after."""

    name: str
    value: Raw


class Compact(_Payload, frozen=True):
    """The context before `keep_from` is replaced by a summary, or by the messages in `rest`."""

    summary: Raw
    keep_from: int
    rest: list[Raw] = []
    provider: str = "anthropic"


class Rewind(_Payload, frozen=True):
    """The context loses what came from event `to` on; the log keeps it."""

    to: int


class Checkpoint(_Payload, frozen=True):
    """The harness' own data at this point."""

    label: str | None = None
    data: Raw = NULL


class Unknown(Struct, frozen=True):
    """A type this version does not know, or a known one whose payload does not fit it."""

    raw: Raw


Payload = (
    SessionStarted
    | SessionResumed
    | SessionReopened
    | SessionSuspended
    | SessionEnded
    | SessionForked
    | SessionImported
    | UserMessage
    | ModelMessages
    | ModelRequest
    | ModelResponse
    | ToolCall
    | ToolResult
    | HookCall
    | HookDecision
    | DecisionRequested
    | DecisionMade
    | InboxRefused
    | ValueRecorded
    | Compact
    | Rewind
    | Checkpoint
    | Unknown
)

TYPES: dict[str, type[_Payload]] = {
    "session_started": SessionStarted,
    "session_resumed": SessionResumed,
    "session_reopened": SessionReopened,
    "session_suspended": SessionSuspended,
    "session_ended": SessionEnded,
    "session_forked": SessionForked,
    "session_imported": SessionImported,
    "user_message": UserMessage,
    "model_messages": ModelMessages,
    "model_request": ModelRequest,
    "model_response": ModelResponse,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "hook_call": HookCall,
    "hook_decision": HookDecision,
    "decision_requested": DecisionRequested,
    "decision_made": DecisionMade,
    "inbox_refused": InboxRefused,
    "value_recorded": ValueRecorded,
    "compact": Compact,
    "rewind": Rewind,
    "checkpoint": Checkpoint,
}
NAMES = {struct: name for name, struct in TYPES.items()}

_decoders = {name: msgspec.json.Decoder(struct) for name, struct in TYPES.items()}
_encode = msgspec.json.Encoder().encode


def decode(type: str, raw: Raw) -> Payload:
    """Read a payload by its event's type. Total: what does not fit comes back as `Unknown`."""
    decoder = _decoders.get(type)
    if decoder is None:
        return Unknown(raw)
    try:
        return decoder.decode(raw)  # type: ignore[return-value]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unknown(raw)


def encode(payload: _Payload) -> Raw:
    """Write a payload as JSON."""
    return Raw(_encode(payload))
