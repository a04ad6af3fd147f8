"""Which events are asked for: by place, type, tool, words, or because something went wrong."""

import re

from msgspec import Struct

from flightlog.errors import InvalidValue
from flightlog.event import Event
from flightlog.wire import payload as payloads
from flightlog.wire.payload import ToolCall, ToolResult

CALLS = 10_000  # open calls whose tool is remembered; a log that never answers has no more

CallKey = tuple[int | None, str]


def pattern(text: str) -> re.Pattern[str]:
    """The pattern that finds the text, in either case. Raises `InvalidValue`."""
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as exc:
        raise InvalidValue("--grep", f"it is no regular expression ({exc})") from None


class Choice(Struct, frozen=True, kw_only=True):
    """What is wanted; an empty field means all. `words` is a pattern for texts and keys."""

    types: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None
    errors: bool = False

    @property
    def is_all(self) -> bool:
        """Whether every event is wanted."""
        return not (self.types or self.tools or self.words or self.errors)


class Chooser:
    """Applies a choice to events in order: a result names its tool only through its call."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._names: dict[CallKey, str] = {}

    def takes(self, event: Event) -> bool:
        """Whether the event is wanted, its words apart: `words.Words` looks for these."""
        choice = self._choice
        if choice.tools and not self._is_of(event, choice.tools):
            return False
        if choice.types and event.type not in choice.types:
            return False
        return is_error(event) or not choice.errors

    def _is_of(self, event: Event, tools: frozenset[str]) -> bool:
        match payloads.decode(event.type, event.raw):
            case ToolCall() as call:
                self._remember((call.announced_by, call.call_id), call.name)
                return call.name in tools
            case ToolResult() as result:
                return self._name(result) in tools
            case _:
                return False

    def _remember(self, key: CallKey, name: str) -> None:
        if len(self._names) >= CALLS:
            del self._names[next(iter(self._names))]
        self._names[key] = name

    def _name(self, result: ToolResult) -> str | None:
        named = self._names.pop((result.announced_by, result.call_id), None)
        if named is not None or result.announced_by is not None:
            return named
        same = [key for key in self._names if key[1] == result.call_id]
        return self._names.pop(same[-1]) if same else None


def is_error(event: Event) -> bool:
    """Whether the event says that something went wrong."""
    match payloads.decode(event.type, event.raw):
        case ToolResult(outcome=outcome):
            return outcome in ("error", "unknown")
        case payloads.ModelResponse(error=error):
            return error is not None
        case payloads.SessionEnded(status=status):
            return status == "failed"
        case payloads.HookDecision(outcome=outcome):
            return outcome == "failed"
        case payloads.InboxRefused():
            return True
        case _:
            return False


def is_tool_call(event: Event) -> bool:
    """Whether a tool is about to run."""
    return event.type == "tool_call"
