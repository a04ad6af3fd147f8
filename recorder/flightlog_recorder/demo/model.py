"""A scripted model that speaks Anthropic's Messages format: it audits two branches a turn.

Its answers depend on the messages alone, so that any process that sends the same context gets the
same answer, and a context that lost or doubled a tool result changes the final report.
"""

import asyncio
import hashlib
import json
from typing import Any

from flightlog_recorder.demo.workspace import ARRIVING, BRANCHES, REPORT

NAME = "scripted-1"
LATENCY = 0.08  # seconds; a real model takes longer, and the demo should not

TASK = "Audit last night's sales, branch by branch. Then tell the warehouse, and write the report."
TOOLS = [
    {"name": "read_file", "description": "Read a file.", "input_schema": {"type": "object"}},
    {"name": "write_file", "description": "Replace a file.", "input_schema": {"type": "object"}},
    {"name": "shell", "description": "Run a command.", "input_schema": {"type": "object"}},
    {"name": "send_mail", "description": "Send a mail.", "input_schema": {"type": "object"}},
]
SUM = "awk -F, '{ sum += $2 } END { print sum }'"
# the shell outlives a killed harness: it looks whether its parent is still there
WAIT = f"until test -e {ARRIVING}; do kill -0 $PPID || exit; sleep 0.05; done; {SUM} {ARRIVING}"
AUDITS = [BRANCHES[at : at + 2] for at in range(0, len(BRANCHES), 2)]  # one a turn

Message = dict[str, Any]
Asked = tuple[str, dict[str, str]]


async def create(*, model: str, messages: list[Message], **_: Any) -> Message:
    """Answer as `client.messages.create` does."""
    await asyncio.sleep(LATENCY)
    turn = sum(message["role"] == "assistant" for message in messages) + 1
    text, calls = answer(turn, messages)
    content: list[Message] = [{"type": "text", "text": text}]
    content += [_tool_use(turn, n, name, given) for n, (name, given) in enumerate(calls, 1)]
    return {
        "id": f"msg_{turn:02}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": _tokens(messages), "output_tokens": _tokens(content)},
    }


def answer(turn: int, messages: list[Message]) -> tuple[str, list[Asked]]:
    """What the model says in its n-th turn, and the calls it asks for."""
    if turn <= len(AUDITS):
        pair = AUDITS[turn - 1]
        return f"I audit {' and '.join(pair)}.", [call for each in pair for call in _audit(each)]
    match turn - len(AUDITS):
        case 1:
            return "I tell the warehouse.", _warehouse()
        case 2:
            return "I write the report.", [
                ("write_file", {"path": REPORT, "text": report(messages)})
            ]
        case _:
            return report(messages), []


def _audit(branch: str) -> list[Asked]:
    source = f"sales/{branch}.csv"
    note = f"{branch}: read and added up"
    return [
        ("read_file", {"path": source}),
        ("shell", {"command": f"{SUM} {source}"}),
        ("write_file", {"path": f"notes/{branch}.md", "text": note}),
    ]


def _warehouse() -> list[Asked]:
    return [
        ("send_mail", {"to": "warehouse", "text": "The audit is done; please send deliveries."}),
        ("read_file", {"path": f"notes/{BRANCHES[-1]}.md"}),
        ("shell", {"command": WAIT}),
    ]


def report(messages: list[Message]) -> str:
    """The final report: made of every tool result that the context holds, in order."""
    outputs = [block.get("content") for block in _results(messages)]
    numbers = [int(text) for text in outputs if isinstance(text, str) and text.strip().isdigit()]
    seen = hashlib.sha256(json.dumps(outputs).encode()).hexdigest()[:12]
    total = sum(numbers[: len(BRANCHES)])
    return f"{len(BRANCHES)} branches sold {total}; evidence {seen}."


def _results(messages: list[Message]) -> list[Message]:
    said = [message["content"] for message in messages if isinstance(message["content"], list)]
    found = [block for blocks in said for block in blocks if block["type"] == "tool_result"]
    return found[: len(BRANCHES) * 3 + 3]  # the report's own result came later


def _tool_use(turn: int, n: int, name: str, given: dict[str, str]) -> Message:
    return {"type": "tool_use", "id": f"toolu_{turn:02}_{n}", "name": name, "input": given}


def _tokens(value: Any) -> int:
    return len(json.dumps(value)) // 4
