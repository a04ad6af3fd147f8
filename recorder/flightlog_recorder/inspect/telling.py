"""An event told in one line, for people. Pure, and total over whatever a log may hold."""

import json
from collections import Counter
from typing import Any

from msgspec import Raw

from flightlog import usage as tokens
from flightlog.event import Event
from flightlog.messages import anthropic, openai_chat
from flightlog.wire import carry
from flightlog.wire import payload as payloads
from flightlog.wire.chunk import Blob
from flightlog.wire.payload import CallRef

WIDTH = 160  # characters of somebody's text in one line


def tell(event: Event) -> str:
    """What the event says, without its type; control characters are the reader's to mask."""
    match payloads.decode(event.type, event.raw):
        case payloads.UserMessage(content=content, origin=origin):
            return _joined(cut(content_text(content)), origin if origin != "human" else "")
        case payloads.ModelMessages(messages=messages):
            return f"{len(messages)} messages of the next request"
        case payloads.ModelRequest(model=model, purpose=purpose):
            return _joined(cut(model or "a model"), "on the side" if purpose == "side" else "")
        case payloads.ModelResponse() as said:
            return _response(said)
        case payloads.ToolCall() as call:
            again = f"attempt {call.attempt}" if call.attempt > 1 else ""
            return _joined(cut(call.name), cut(text(call.arguments)), again)
        case payloads.ToolResult() as result:
            took = f"{result.duration:.2f} s" if result.duration is not None else ""
            by = result.resolved_by if result.resolved_by != "run" else ""
            return _joined(
                result.outcome, took, by and f"by {by}", cut(content_text(result.output))
            )
        case found:
            return _tell_life(found) or _tell_ruling(found) or _tell_rest(found, event)


def _tell_life(payload: payloads.Payload) -> str:
    match payload:
        case payloads.SessionStarted(writer=writer, key=key):
            return _joined(f"writer {writer.number}", f"key {cut(key)}" if key else "")
        case payloads.SessionResumed() as resumed:
            flying = len(resumed.in_flight)
            return _joined(
                f"writer {resumed.writer.number}",
                f"from snapshot {resumed.snapshot}" if resumed.snapshot else "from the log alone",
                f"{flying} in flight" if flying else "",
            )
        case payloads.SessionSuspended(reason=reason):
            return cut(reason)
        case payloads.SessionEnded(status=status, error=error):
            return _joined(status, cut(error or ""))
        case payloads.SessionForked(session=session, seq=seq):
            return f"from {cut(session)} at seq {seq}"
        case payloads.SessionImported() as source:
            grown = f"grown from {cut(source.earlier)}" if source.earlier else ""
            return _joined(cut(source.format), cut(source.path or source.id or ""), grown)
        case _:
            return ""


def _tell_ruling(payload: payloads.Payload) -> str:
    match payload:
        case payloads.DecisionRequested(call=call, question=question):
            return _joined(_named(call), cut(question))
        case payloads.DecisionMade() as made:
            return _joined(
                _named(made.call), made.ruling, f"by {cut(made.by)}", cut(made.reason or "")
            )
        case payloads.InboxRefused(why=why):
            return cut(why)
        case _:
            return ""


def _tell_rest(payload: payloads.Payload, event: Event) -> str:
    match payload:
        case payloads.HookCall(hook=hook):
            return cut(hook)
        case payloads.HookDecision(outcome="failed", reason=reason):
            return _joined("failed", cut(reason or ""))
        case payloads.HookDecision(decision=decision):
            return cut(text(decision))
        case payloads.ValueRecorded(name=name, value=value):
            return f"{cut(name)} = {cut(text(value))}"
        case payloads.Compact(keep_from=keep_from):
            return f"all before seq {keep_from} is a summary now"
        case payloads.Rewind(to=to):
            return f"the context is what it was before seq {to}"
        case payloads.Checkpoint(label=label):
            return cut(label or "")
        case _:
            return _line(event) or cut(text(event.raw))


def _line(event: Event) -> str:
    """What kind of line an import kept as it is."""
    kept = _value(event.raw) if event.type == "import_line" else None
    if not (isinstance(kept, dict) and isinstance(kind := kept.get("kind"), str)):
        return ""
    at = kept.get("line")
    return _joined(cut(kind), f"line {at}" if isinstance(at, int) else "")


def _response(said: payloads.ModelResponse) -> str:
    if said.error is not None:
        return f"error: {cut(said.error)}"
    announced = anthropic.reply(said.message).calls or openai_chat.reply(said.message).calls
    called = Counter(call.name for call in announced)
    calls = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in called.items())
    used = tokens.of(said.usage)
    cost = f"{used.output_tokens:,} tokens out" if used.output_tokens else ""
    words = cut(content_text(said.message))
    return _joined(words, calls and f"calls {cut(calls)}", cost) or "no words and no calls"


def content_text(raw: Raw) -> str:
    """The words in a message or its content: a text, or the texts of its blocks."""
    value = _value(raw)
    if isinstance(value, dict) and "content" in value:
        value = value["content"]
    if isinstance(value, list):
        found = [str(block["text"]) for block in value if _is_text(block)]
        return " ".join(found) if found or not value else f"[{_kinds(value)}]"
    if isinstance(value, str | Blob):
        return str(value)
    return "" if value is None else text(raw)


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and isinstance(block.get("text"), str | Blob)


def _kinds(blocks: list[Any]) -> str:
    return ", ".join(str(block.get("type")) for block in blocks if isinstance(block, dict))


def text(raw: Raw) -> str:
    """Any payload's value in one line; lone surrogates and the like as JSON escapes."""
    value = _value(raw)
    if value is None:
        return ""
    if isinstance(value, str | Blob):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=_odd)


def said(chunk: Any) -> str:
    """A piece of progress in one line, and no longer than that."""
    words = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False, default=_odd)
    return cut(words)


def _odd(value: object) -> str:
    return str(value) if isinstance(value, Blob) else repr(value)


def _value(raw: Raw) -> Any:
    try:
        return carry.unpack(raw)
    except (ValueError, TypeError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def _named(call: CallRef) -> str:
    return f"call {cut(call.call_id)}"


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def cut(words: str, *, width: int = WIDTH) -> str:
    """The words in one line, and no longer than that."""
    words = " ".join(words[: 4 * width].split())
    return words if len(words) <= width else f"{words[: width - 1]}…"
