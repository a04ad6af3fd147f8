"""A harness that passes its whole context each turn: what is stored grows with what is new."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from flightlog import context, state
from flightlog.wire import payload
from flightlog.wire.payload import ModelRequest
from tests.sdk.tale import Tale, text, tool_use

TURNS, FEWER = 1_000, 200
ANSWER, OUTPUT = "said " * 200, "found " * 700  # 1 and 4 KiB, about what coding agents write
EVERY = 50  # requests are rebuilt at this distance: each has up to 8 MB
LONG = "rule " * 4_000  # 20 KB
TOOLS = [{"name": "t", "description": "long " * 1_000}]

Message = dict[str, Any]
Request = dict[str, Any]


def whole(messages: list[Message], _: int) -> Request:
    return {"system": "be brief", "messages": messages}


def with_moving_cache_marks(messages: list[Message], _: int) -> Request:
    *before, last = messages
    if isinstance(last["content"], list):
        marked = {**last["content"][-1], "cache_control": {"type": "ephemeral"}}
        last = {**last, "content": [*last["content"][:-1], marked]}
    return {"system": "be brief", "messages": [*before, last]}


def with_a_trimmed_middle(messages: list[Message], _: int) -> Request:
    return {"system": "be brief", "messages": messages[:1] + messages[-40:]}


def with_a_changed_system_prompt(messages: list[Message], turn: int) -> Request:
    return {"system": f"be brief; it is turn {turn}", "messages": messages}


def with_reminders(messages: list[Message], turn: int) -> Request:
    reminder = {"role": "user", "content": [text(f"<reminder>turn {turn}</reminder>")]}
    return {"system": "be brief", "messages": [*messages, reminder]}


def with_a_reminder_inside_the_last_message(messages: list[Message], turn: int) -> Request:
    *before, last = messages
    blocks = last["content"]
    blocks = [text(blocks)] if isinstance(blocks, str) else blocks
    reminded = {**last, "content": [*blocks, text(f"<reminder>turn {turn}</reminder>")]}
    return {"system": "be brief", "messages": [*before, reminded]}


def with_reminders_that_stay(messages: list[Message], turn: int) -> Request:
    messages[-1] = with_a_reminder_inside_the_last_message(messages, turn)["messages"][-1]
    return {"system": "be brief", "messages": messages}


def with_the_time_at_the_end_of_a_long_prompt(messages: list[Message], turn: int) -> Request:
    return {"system": f"{LONG}\nit is turn {turn}", "messages": messages}


def with_the_time_in_a_block_behind_a_long_one(messages: list[Message], turn: int) -> Request:
    return {"system": [text(LONG), text(f"it is turn {turn}")], "messages": messages}


def with_prompts_in_turn(messages: list[Message], turn: int) -> Request:
    return {"system": f"{LONG}{turn % 3} {LONG}", "messages": messages}


def with_tools_every_other_turn(messages: list[Message], turn: int) -> Request:
    return {"system": "be brief", "messages": messages, "tools": TOOLS if turn % 2 else []}


def with_every_message_aged_in_a_window(messages: list[Message], turn: int) -> Request:
    def aged(message: Message, age: int) -> Message:
        if isinstance(message["content"], str):
            return message
        return {**message, "content": [text(f"<age>{age} of {turn}</age>"), *message["content"]]}

    window = messages[-8:]
    shown = [aged(each, age) for age, each in enumerate(reversed(window))]
    return {"system": "be brief", "messages": [messages[0], *reversed(shown)]}


class Harness:
    """Keeps its own list of messages; `tale` is what is recorded, `sent` what was sent."""

    def __init__(self, edit: Callable[[list[Message], int], Request]) -> None:
        self.tale, self.unique, self._edit = Tale(), dict[bytes, None](), edit
        self._messages: list[Message] = []
        self.sent: list[Request] = []

    def run(self, turns: int) -> None:
        self.tale.started()
        self.tale.user("the task")
        self._say({"role": "user", "content": "the task"})
        for turn in range(turns):
            self._ask(turn)
            content = [text(f"{turn} {ANSWER}"), tool_use(f"c{turn}", n=turn)]
            self.tale.response(*content)
            self._say({"role": "assistant", "content": content})
            self.tale.call(f"c{turn}", arguments={"n": turn})
            self.tale.result(f"c{turn}", f"{turn} {OUTPUT}")
            result = {"type": "tool_result", "tool_use_id": f"c{turn}"}
            self._say({"role": "user", "content": [{**result, "content": f"{turn} {OUTPUT}"}]})

    def _ask(self, turn: int) -> None:
        request = {"model": "m", "tools": TOOLS, **self._edit(self._messages, turn)}
        self.sent.append({**request, "messages": list(request["messages"])})
        self._note(request["system"], TOOLS, *request["messages"][len(self._messages) :])
        self.tale.request(request)

    def _say(self, message: Message) -> None:
        self._messages.append(message)
        self._note(message)

    def _note(self, *parts: Any) -> None:
        """What is in it, block by block and line by line: a text that changes is not all new."""
        for part in parts:
            match part:
                case {"content": content}:
                    self._note(content)
                case list():
                    self._note(*part)
                case {"text": str(said)} | {"content": str(said)} | str(said):
                    self.unique |= dict.fromkeys(msgspec.json.encode(e) for e in said.split("\n"))
                case _:
                    self.unique[msgspec.json.encode(part)] = None


def stored(tale: Tale) -> int:
    return sum(len(each.body) for each in tale.events)


@pytest.mark.timeout(180)  # 1,000 requests of up to 2,000 messages are made, rebuilt and compared
@pytest.mark.parametrize(
    "edit",
    [
        whole,
        with_moving_cache_marks,
        with_a_trimmed_middle,
        with_the_time_at_the_end_of_a_long_prompt,
        with_a_reminder_inside_the_last_message,
    ],
)
def test_a_thousand_turns_store_little_more_than_what_is_new_and_every_request_comes_back(
    edit: Callable[[list[Message], int], Request],
) -> None:
    assert_cheap(edit, TURNS)


@pytest.mark.parametrize(
    "edit",
    [
        with_a_changed_system_prompt,
        with_the_time_in_a_block_behind_a_long_one,
        with_prompts_in_turn,
        with_tools_every_other_turn,
        with_reminders,
        with_reminders_that_stay,
    ],
)
def test_so_do_fewer_turns_of_every_other_kind(
    edit: Callable[[list[Message], int], Request],
) -> None:
    assert_cheap(edit, FEWER)


def test_a_window_in_which_every_message_changes_each_turn_stores_the_changes_alone() -> None:
    harness = Harness(with_every_message_aged_in_a_window)
    harness.run(FEWER)
    assert stored(harness.tale) <= 1.4 * sum(map(len, harness.unique))  # eight patches a turn
    assert_rebuilt(harness)


def assert_cheap(edit: Callable[[list[Message], int], Request], turns: int) -> None:
    harness = Harness(edit)
    harness.run(turns)
    unique = sum(map(len, harness.unique))
    assert stored(harness.tale) <= 1.3 * unique
    assert_rebuilt(harness)


def assert_rebuilt(harness: Harness) -> None:
    """Requests are made from the log before them, byte for byte what was sent."""
    found, turn = state.initial(), 0
    for each in harness.tale.events:
        if each.type == "model_request":
            turn += 1
            if turn % EVERY == 0:
                asked = payload.decode(each.type, each.raw)
                assert isinstance(asked, ModelRequest)
                sent = harness.sent[turn - 1]
                assert json.dumps(context.rebuild(found, asked)) == json.dumps(sent)
        found = state.apply(found, each)
