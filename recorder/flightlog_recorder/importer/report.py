"""What became of each line of a source: the counts that must add up."""

from collections import Counter
from typing import Any

import msgspec


class Flag(msgspec.Struct, frozen=True):
    """Something a person should look at; never holds the line's content."""

    line: int
    why: str


class Usage(msgspec.Struct):
    """Tokens, each message counted once; the three kinds of input are disjoint."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    messages: int = 0
    lower_bounds: int = 0

    @property
    def input_total(self) -> int:
        """All input tokens, read from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def add(self, usage: Any, *, lower_bound: bool) -> None:
        """Count one message's usage; `lower_bound` when the stream had not said its last number."""
        if not isinstance(usage, dict):
            return
        self.messages += 1
        self.lower_bounds += lower_bound
        self.input_tokens += _tokens(usage, "input_tokens")
        self.output_tokens += _tokens(usage, "output_tokens")
        self.cache_read_tokens += _tokens(usage, "cache_read_input_tokens")
        self.cache_write_tokens += _tokens(usage, "cache_creation_input_tokens")


class Report(msgspec.Struct):
    """The account of an import. `balanced` says that nothing was dropped.

    Every line is blank or holds records (nearly always one). Every record became an event
    (`recorded`), or is view-only and counted by name, or could not be read and was `kept` raw.
    """

    lines: int = 0
    blank: int = 0
    records: int = 0
    extra_records: int = 0
    recorded: int = 0
    kept: int = 0
    view_only: dict[str, int] = {}
    types: dict[str, int] = {}
    unknown: dict[str, int] = {}
    events: dict[str, int] = {}
    flagged: list[Flag] = []
    orphan_calls: int = 0
    orphan_results: int = 0
    rewound: int = 0
    repeated: int = 0
    side: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)
    largest: int = 0
    largest_line: int = 0

    @property
    def balanced(self) -> bool:
        """Whether every line and every record has exactly one fate."""
        fates = self.recorded + self.kept + sum(self.view_only.values())
        in_lines = self.records - self.extra_records
        return self.records == fates and self.lines == self.blank + in_lines

    def flag(self, line: int, why: str) -> None:
        """Point a person to a line."""
        self.flagged.append(Flag(line, why))

    def count(self, table: str, name: str) -> None:
        """Add one to a table of names: `types`, `unknown`, `view_only` or `events`."""
        counts: dict[str, int] = getattr(self, table)
        counts[name] = counts.get(name, 0) + 1

    def measure(self, size: int, line: int) -> None:
        """Remember the largest payload, in bytes, and where it came from."""
        if size > self.largest:
            self.largest, self.largest_line = size, line


def by_why(report: Report) -> dict[str, int]:
    """The flags by what is wrong, most frequent first."""
    return dict(Counter(flag.why for flag in report.flagged).most_common())


def _tokens(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else 0
