"""OpenAI's published rules for `messages` of Chat Completions, as a checker.

They are those of the API reference (which content and fields a role's message may have) and of the
function calling guide: an assistant message with `tool_calls` is followed by one `tool` message for
each `tool_call_id`, before anything else; a `tool` message answers such a call.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

Message = dict[str, Any]

PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


def faults(messages: Sequence[Message]) -> list[str]:
    """Every broken rule, in words; empty for messages that the API takes."""
    found = [f"{at}: {fault}" for at, message in enumerate(messages) for fault in _alone(message)]
    return found or list(_pairs(messages))


def _alone(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in PARTS:
        yield "it has no known role"
        return
    yield from _content(message)
    yield from _calls(message)
    try:
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        yield "it is no JSON in UTF-8"


def _content(message: Message) -> Iterator[str]:
    content, role = message.get("content"), message["role"]
    if content is None:
        if role != "assistant" or not (message.get("tool_calls") or message.get("audio")):
            yield "it has no content"
    elif isinstance(content, str):
        if not content.strip() and role != "tool" and not message.get("tool_calls"):
            yield "it is empty"
    elif not isinstance(content, list) or not content:
        yield "its content is neither text nor parts"
    else:
        for part in content:
            if not isinstance(part, dict) or part.get("type") not in PARTS[role]:
                yield f"a part is none that {role} may have"
            elif part["type"] == "text" and not part["text"].strip():
                yield "a text part is empty"


def _calls(message: Message) -> Iterator[str]:
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield "it answers no call"
    calls = message.get("tool_calls")
    if calls is None:
        return
    if message["role"] != "assistant" or not isinstance(calls, list) or not calls:
        yield "its tool_calls are none"
        return
    if len({call["id"] for call in calls}) != len(calls):
        yield "two calls have one id"
    for call in calls:
        tool = call.get("function") or {"arguments": "", **call.get("custom", {})}
        if not call["id"] or not tool.get("name") or not isinstance(tool.get("arguments"), str):
            yield "a call lacks its id, name or arguments"


def _pairs(messages: Sequence[Message]) -> Iterator[str]:
    due = list[str]()
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in due:
                yield f"{at}: a result without its call"
                continue
            due.remove(message["tool_call_id"])
            continue
        if due:
            yield f"{at}: calls {due} are not answered before it"
        due = [call["id"] for call in message.get("tool_calls") or []]
    if due:
        yield f"the end: calls {due} are not answered"
