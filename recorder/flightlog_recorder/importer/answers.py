"""The model's answers, which Claude Code writes as several lines each, put together again."""

from typing import Any

import msgspec

from flightlog.wire import carry
from flightlog_recorder.importer.drafts import Drafts, place
from flightlog_recorder.importer.report import Report
from flightlog_recorder.importer.source import Record, plain


class Answer:
    """The lines of one provider message. Its event stands where the first of them stood."""

    def __init__(self, *, index: int, purpose: str, request_id: object) -> None:
        self.index, self.purpose, self.request_id = index, purpose, request_id
        self._blocks: list[msgspec.Raw] = []
        self._seen: set[bytes] = set()
        self._text: str | None = None
        self._heads: list[dict[str, Any]] = []
        self._lines: list[dict[str, Any]] = []

    def repeats(self, content: list[msgspec.Raw] | str) -> bool:
        """Whether all of a line's blocks are already here: harnesses copy history."""
        blocks = _blocks(content)
        return bool(blocks) and all(bytes(block) in self._seen for block in blocks)

    def take(self, record: Record, content: list[msgspec.Raw] | str) -> list[int]:
        """Add one line: its blocks, or its text; return which of the blocks are new."""
        self._text = content if isinstance(content, str) and not self._lines else None
        blocks = _blocks(content)
        new = [i for i, block in enumerate(blocks) if bytes(block) not in self._seen]
        self._blocks += [blocks[i] for i in new]
        self._seen.update(bytes(blocks[i]) for i in new)
        message = record.fields["message"]
        self._heads.append({k: v for k, v in message.items() if k != "content"})
        rest = {k: v for k, v in record.fields.items() if k != "message"}
        self._lines.append({**place(record), "blocks": len(new), "record": rest})
        return new

    @property
    def usage(self) -> Any:
        """The last line's usage, with the cost that early versions wrote beside the message.

        Those before it are placeholders of the stream.
        """
        usage, costs = self._last("usage"), [line["record"].get("costUSD") for line in self._lines]
        known = [cost for cost in costs if cost is not None]
        return {"cost": known[-1]} | usage if known and isinstance(usage, dict) else usage

    @property
    def stop(self) -> str | None:
        """Why the model stopped; None when no line said so."""
        return plain(self._last("stop_reason"))

    @property
    def error(self) -> str | None:
        """What went wrong, for a message that the harness made up to show an API error."""
        if not any(line["record"].get("isApiErrorMessage") is True for line in self._lines):
            return None
        texts = map(_text, self._blocks)
        return " ".join(text for text in texts if text) or "an API error without a text"

    def payload(self) -> dict[str, Any]:
        """The model_response."""
        message = self._message()
        payload = {"message": message, "usage": self.usage, "stop": self.stop, "error": self.error}
        payload = {name: value for name, value in payload.items() if value is not None}
        if self.usage is not None and self.stop is None:
            payload["usage_is_lower_bound"] = True
        lines = zip(self._lines, self._heads, strict=True)
        sources = [{**line, **_differing(head, message)} for line, head in lines]
        return {**payload, "source": {"line": self._lines[0]["line"], "lines": sources}}

    def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for head in self._heads:
            message.update({k: v for k, v in head.items() if v is not None or k not in message})
        if self._text is not None:
            return {**message, "content": self._text}
        return {**message, "content": self._blocks}

    def _last(self, name: str) -> Any:
        said = [head[name] for head in self._heads if head.get(name) is not None]
        return said[-1] if said else None


class Answers:
    """All answers of a transcript: a line joins the one it belongs to, or opens a new one."""

    def __init__(self, drafts: Drafts, report: Report) -> None:
        self._drafts, self._report = drafts, report
        self._all: list[Answer] = []
        self._by_id: dict[tuple[str, str], Answer] = {}

    def of(self, record: Record, *, purpose: str) -> Answer:
        """The answer that an assistant record belongs to: by message id, else by request."""
        message_id = record.fields["message"].get("id")
        if not isinstance(message_id, str):
            return self._adjacent(record, purpose) or self._open(record, purpose)
        key = (purpose, message_id)
        if key not in self._by_id:
            self._by_id[key] = self._open(record, purpose)
        return self._by_id[key]

    def close(self) -> None:
        """Write what each answer has become, and count its tokens once."""
        for answer in self._all:
            self._drafts.fill(answer.index, answer.payload())
            if answer.error is None:
                self._report.usage.add(answer.usage, lower_bound=answer.stop is None)

    def _adjacent(self, record: Record, purpose: str) -> Answer | None:
        request_id, last = record.fields.get("requestId"), self._all[-1] if self._all else None
        if not request_id or not last or last.index + 1 != len(self._drafts):
            return None
        return last if (last.request_id, last.purpose) == (request_id, purpose) else None

    def _open(self, record: Record, purpose: str) -> Answer:
        model = plain(record.fields["message"].get("model"))
        request: dict[str, Any] = {"provider": "anthropic", "purpose": purpose}
        if model is not None:
            request["model"] = model
        asked = self._drafts.add("model_request", {**request, "source": place(record)}, record)
        index = self._drafts.add("model_response", {}, record, parent=asked)
        answer = Answer(index=index, purpose=purpose, request_id=record.fields.get("requestId"))
        self._all.append(answer)
        return answer


def _blocks(content: list[msgspec.Raw] | str) -> list[msgspec.Raw]:
    if isinstance(content, str):
        return [carry.pack({"type": "text", "text": content})]
    return content


def _text(block: msgspec.Raw) -> str | None:
    return plain(msgspec.json.decode(block).get("text"))


def _differing(head: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    differing = {k: v for k, v in head.items() if k not in message or message[k] != v}
    return {"message": differing} if differing else {}
