"""What differs between two values: what was added, removed and changed, and where. Pure.

Dicts and lists are compared inside, all else as a whole. Applying a delta to the older value gives
the newer: changes are in the order in which they are to be made.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

Path = tuple[str | int, ...]
Kind = Literal["added", "removed", "changed"]
Open = Callable[[Any], Any]

NAMES = ("seq", "type", "id", "call_id", "name", "role")  # tell whether two list items are one
MOST_LINES = 5_000  # of a text: difflib takes seconds beyond


class Change(Struct, frozen=True):
    """One difference. `old` means nothing for what was added, `new` for what was removed."""

    kind: Kind
    path: Path
    old: Any = None
    new: Any = None

    @property
    def is_text(self) -> bool:
        """Whether a text became another one."""
        return isinstance(self.old, str) and isinstance(self.new, str)


def delta(old: Any, new: Any, *, opened: Open = lambda value: value) -> list[Change]:
    """The changes from one value to another.

    `opened` takes apart what is no builtin, and is asked only about values that differ; changes
    hold them as they are.
    """
    return list(_between((), old, new, opened))


def applied(value: Any, changes: Sequence[Change]) -> Any:
    """The newer value: what the changes make of the older, which stays as it is."""
    for change in changes:
        value = _put(value, change.path, change)
    return value


def shown(path: Path) -> str:
    """The path for people: `entries[3].content`, `labels["a b"]`."""
    return "".join(map(_step, path)).removeprefix(".")


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() else f"[{json.dumps(step, ensure_ascii=False)}]"


def lines(old: str, new: str) -> list[str]:
    """Two texts as the lines that differ, marked `-` and `+`; `@@` stands where some are left out.

    Long texts are compared around their first difference alone.
    """
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MOST_LINES:
        before, after = _apart(before, after)
    found = difflib.unified_diff(before, after, n=1, lineterm="")
    return [line for line in found if not line.startswith(("---", "+++"))]


def _apart(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    half = MOST_LINES // 4
    return before[max(0, same - 1) : same + half], after[max(0, same - 1) : same + half]


def _between(path: Path, old: Any, new: Any, opened: Open) -> Iterator[Change]:
    if _equal(old, new):
        return
    match opened(old), opened(new):
        case dict(before), dict(after):
            yield from _in_dicts(path, before, after, opened)
        case list(before), list(after):
            yield from _in_lists(path, before, after, opened)
        case before, after if not _equal(before, after):
            yield Change("changed", path, old, new)
        case _:
            pass


def _in_dicts(
    path: Path, old: dict[Any, Any], new: dict[Any, Any], opened: Open
) -> Iterator[Change]:
    for key, value in old.items():
        if key not in new:
            yield Change("removed", (*path, key), old=value)
    for key, value in new.items():
        if key in old:
            yield from _between((*path, key), old[key], value, opened)
        else:
            yield Change("added", (*path, key), new=value)


def _in_lists(path: Path, old: list[Any], new: list[Any], opened: Open) -> Iterator[Change]:
    first = _alike(old, new)
    most = min(len(old), len(new)) - first
    last = min(most, _alike(old[::-1], new[::-1]))
    before, after = old[first : len(old) - last], new[first : len(new) - last]
    pairs = _paired(before, after, opened)
    for at in reversed(range(len(before))):
        if at >= pairs:
            yield Change("removed", (*path, first + at), old=before[at])
    for at, value in enumerate(after):
        if at < pairs:
            yield from _between((*path, first + at), before[at], value, opened)
        else:
            yield Change("added", (*path, first + at), new=value)


def _alike(old: list[Any], new: list[Any]) -> int:
    """How many items at the head are equal."""
    for at, (before, after) in enumerate(zip(old, new, strict=False)):
        if not _equal(before, after):
            return at
    return min(len(old), len(new))


def _paired(before: list[Any], after: list[Any], opened: Open) -> int:
    """How many items are the same ones in another form; those behind them come and go."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if not _is_same(opened(old), opened(new)):
            return at
    return min(len(before), len(after))


def _is_same(old: Any, new: Any) -> bool:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return type(old) is type(new)
    return all(old.get(name) == new.get(name) for name in NAMES)


def _equal(old: Any, new: Any) -> bool:
    """Equal in value and in kind: True is not 1, and NaN is NaN."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    match old:
        case dict():
            return old.keys() == new.keys() and all(_equal(old[key], new[key]) for key in old)
        case list():
            return len(old) == len(new) and _alike(old, new) == len(old)
        case float():
            return repr(old) == repr(new)
        case _:
            return bool(old == new)


def _put(value: Any, path: Path, change: Change) -> Any:
    """The value with the change made at the path; what lies beside the path is shared."""
    if not path:
        return change.new
    step, rest = path[0], path[1:]
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if rest or change.kind == "changed":
        copy[step] = _put(copy[step], rest, change)
    elif change.kind == "removed":
        del copy[step]
    elif isinstance(copy, list):
        copy.insert(int(step), change.new)
    else:
        copy[step] = change.new
    return copy
