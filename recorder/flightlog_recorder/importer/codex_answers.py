"""The model's answers, which Codex writes item by item, put together again."""

from typing import Any

import msgspec

from flightlog.wire import carry
from flightlog_recorder.importer.codex_items import Call, Item, Spoken
from flightlog_recorder.importer.drafts import Drafts, place
from flightlog_recorder.importer.report import Report

PROVIDER = "openai-chat"


class Answer:
    """What the model said in one go. Its event stands where the first item stood.

    The message is in Chat Completions' format, so that every provider's view can be made of it; the
    items beside it are as the Responses API gave them, encrypted reasoning included.
    """

    def __init__(self, *, index: int, error: str | None = None) -> None:
        self.index = index
        self.error = error
        self.usage: dict[str, int] | None = None
        self._spoken = Spoken()
        self._items: list[msgspec.Raw] = []
        self._lines: list[dict[str, Any]] = []

    def take(self, item: Item, call: Call | None = None) -> None:
        """Add an item, and the call that it is."""
        if call is not None:
            self._spoken.ask(call)
        elif item.kind == "message":
            self._spoken.say(item.body)
        self._items.append(carry.pack(item.body))
        self._lines.append({**place(item.record), "record": item.outside})

    def count(self, item: Item, usage: dict[str, int]) -> None:
        """Say what it used."""
        self.usage = usage
        self.mention(item)

    def mention(self, item: Item) -> None:
        """Keep a line that is about the answer and no part of it."""
        self._lines.append({**place(item.record), "record": item.record.fields})

    def payload(self) -> dict[str, Any]:
        """The model_response."""
        payload: dict[str, Any] = {"message": self._spoken.message() if self._items else None}
        payload |= {"items": self._items} if self._items else {}
        payload |= {"usage": self.usage} if self.usage else {}
        payload |= {"error": self.error} if self.error is not None else {}
        return {**payload, "source": {"line": self._lines[0]["line"], "lines": self._lines}}


class Answers:
    """All answers of a rollout. An answer is over when anything reaches the model again."""

    def __init__(self, drafts: Drafts, report: Report) -> None:
        self._drafts, self._report = drafts, report
        self._all: list[Answer] = []
        self._current: Answer | None = None
        self._uncounted: Answer | None = None
        self.model: str | None = None

    def current(self, item: Item) -> Answer:
        """The answer that is being given; a new one if there is none."""
        if self._current is None:
            self._current = self._uncounted = self._open(item, purpose="main")
        return self._current

    def over(self) -> None:
        """What comes next is another answer."""
        self._current = None

    def count(self, item: Item, usage: dict[str, int]) -> None:
        """Give the tokens to the last answer; if it has its own, to a call nobody wrote down.

        Codex summarises in calls of its own, whose answers are not in the file.
        """
        answer = self._uncounted or self._open(item, purpose="side")
        answer.count(item, usage)
        self._current = self._uncounted = None

    def fail(self, item: Item, error: str) -> None:
        """A call that ended in an error; it takes nothing from the conversation."""
        self._open(item, purpose="side", error=error).mention(item)
        self.over()

    def close(self) -> None:
        """Write what each answer has become, and count its tokens."""
        for answer in self._all:
            self._drafts.fill(answer.index, answer.payload())
            self._report.usage.add(answer.usage, lower_bound=False)

    def _open(self, item: Item, *, purpose: str, error: str | None = None) -> Answer:
        request: dict[str, Any] = {"provider": PROVIDER, "purpose": purpose}
        if self.model is not None:
            request["model"] = self.model
        request["source"] = place(item.record)
        asked = self._drafts.add("model_request", request, item.record)
        index = self._drafts.add("model_response", {}, item.record, parent=asked)
        answer = Answer(index=index, error=error)
        self._all.append(answer)
        return answer
