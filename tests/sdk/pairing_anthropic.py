"""Anthropic's published rules for `messages`, as a checker.

They are those of the Messages API reference and of the guide to tool use: each `tool_use` block has
its `tool_result` in the next message, a user's, whose results come before anything else; text is
never empty; the user speaks first; thinking is never an assistant message's last block.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

Message = dict[str, Any]

OF_OTHERS = {"image_url", "input_audio", "file", "refusal", "function"}


def faults(messages: Sequence[Message]) -> list[str]:
    """Every broken rule, in words; empty for messages that the API takes."""
    found = [f"{at}: {fault}" for at, message in enumerate(messages) for fault in _alone(message)]
    return found or [f"{at}: {fault}" for at, fault in _between(messages)]


def _alone(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
        yield "it has no known role"
        return
    if set(message) != {"role", "content"}:
        yield "its fields are not role and content"
        return
    try:
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as exc:
        yield f"it is no JSON in UTF-8 ({type(exc).__name__})"
    yield from _content(message["content"])
    last = _blocks(message)[-1] if _blocks(message) else None
    if isinstance(last, dict) and last.get("type") in ("thinking", "redacted_thinking"):
        yield "it ends in thinking"


def _content(content: Any) -> Iterator[str]:
    if not isinstance(content, str | list):
        yield "its content is neither text nor blocks"
    elif not content or (isinstance(content, str) and not content.strip()):
        yield "it is empty"
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            yield "a block has no type"
            continue
        yield from _block(block)


def _block(block: dict[str, Any]) -> Iterator[str]:
    if block["type"] in OF_OTHERS:
        yield "a block is another provider's"
    if block["type"] == "text" and not block["text"].strip():
        yield "a text block is empty"
    if block["type"] == "tool_use" and not isinstance(block["input"], dict):
        yield "a call's input is no object"
    if block.get("is_error") and not block.get("content"):
        yield "an error without content"
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        yield from (fault for each in block["content"] for fault in _block(each))


def _between(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    if messages and messages[0]["role"] != "user":
        yield 0, "the first message is not the user's"
    for at, message in enumerate(messages):
        following = messages[at + 1] if at + 1 < len(messages) else None
        before = messages[at - 1] if at else None
        for fault in (*_answers(message, following), *_asked(message, before)):
            yield at, fault


def _answers(message: Message, following: Message | None) -> Iterator[str]:
    asked = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
    if len(set(asked)) != len(asked):
        yield "two calls have one id"
    head = [block.get("tool_use_id") for block in _blocks(following or {})][: len(asked)]
    if asked and sorted(map(str, head)) != sorted(asked):
        yield f"calls {asked} are not answered at the head of the next message"


def _asked(message: Message, before: Message | None) -> Iterator[str]:
    asked = [block["id"] for block in _blocks(before or {}) if block["type"] == "tool_use"]
    given = [b["tool_use_id"] for b in _blocks(message) if b["type"] == "tool_result"]
    if sorted(given) != sorted(asked):
        yield f"results {given} for calls {asked}"


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
