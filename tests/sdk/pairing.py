"""Anthropic's published rules for `messages`, as a checker."""

from collections.abc import Iterator, Sequence
from typing import Any

Message = dict[str, Any]


def faults(messages: Sequence[Message]) -> list[str]:
    """Every broken rule, in words; empty for messages that the API takes."""
    return [f"{at}: {fault}" for at, fault in enumerate_faults(messages)]


def enumerate_faults(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    if messages and messages[0]["role"] != "user":
        yield 0, "the first message is not the user's"
    for at, message in enumerate(messages):
        following = messages[at + 1] if at + 1 < len(messages) else None
        before = messages[at - 1] if at else None
        for fault in (*_content(message), *_answers(message, following), *_asked(message, before)):
            yield at, fault


def _content(message: Message) -> Iterator[str]:
    content = message["content"]
    if set(message) != {"role", "content"} or message["role"] not in ("user", "assistant"):
        yield "its fields are not role and content"
    if not content or (isinstance(content, str) and not content.strip()):
        yield "it is empty"
    for block in _blocks(message):
        if block["type"] == "text" and not block["text"].strip():
            yield "a text block is empty"
        if block.get("is_error") and not block.get("content"):
            yield "an error without content"
    if _blocks(message) and _blocks(message)[-1]["type"] in ("thinking", "redacted_thinking"):
        yield "it ends in thinking"


def _answers(message: Message, following: Message | None) -> Iterator[str]:
    asked = [block["id"] for block in _blocks(message) if block["type"] == "tool_use"]
    if len(set(asked)) != len(asked):
        yield "two calls have one id"
    if asked and (following is None or _results(following)[: len(asked)] != asked):
        yield f"calls {asked} are not answered at the head of the next message"


def _asked(message: Message, before: Message | None) -> Iterator[str]:
    asked = [block["id"] for block in _blocks(before or {}) if block["type"] == "tool_use"]
    given = [b["tool_use_id"] for b in _blocks(message) if b["type"] == "tool_result"]
    if given != asked[: len(given)] or len(given) > len(asked):
        yield f"results {given} for calls {asked}"


def _results(message: Message) -> list[str]:
    return [block.get("tool_use_id", "") for block in _blocks(message)]


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
