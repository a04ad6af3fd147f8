"""Codex's token counts, which are running totals and repeat: each token is counted once."""

from typing import Any

MOST = 2**53  # the largest integer that every JSON reader keeps

FIELDS = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
OLDER = {"input_tokens": "prompt", "output_tokens": "completion"}  # names before version 0.51

Totals = tuple[int, int, int, int]


class Tokens:
    """The totals as the file last said them."""

    def __init__(self) -> None:
        self._totals: Totals = (0, 0, 0, 0)

    def take(self, info: Any) -> dict[str, int] | None:
        """What has been used since the last count, input split by where it was read from.

        None for a count that says nothing new. A total that falls begins anew: Codex was started
        again without its history.
        """
        totals = _totals(info)
        if totals is None:
            return None
        grown = all(new >= old for new, old in zip(totals, self._totals, strict=True))
        used = tuple(new - old for new, old in zip(totals, self._totals, strict=True))
        if not grown:
            used = _read(info.get("last_token_usage")) or totals
        self._totals = totals
        return _usage(used) if any(used) else None


def _totals(info: Any) -> Totals | None:
    if not isinstance(info, dict):
        return None
    if "total_token_usage" in info:
        return _read(info["total_token_usage"])
    renamed = {name: info[older] for name, older in OLDER.items() if older in info}
    return _read({**info, **renamed})


def _read(usage: Any) -> Totals | None:
    if not isinstance(usage, dict) or not any(name in usage for name in FIELDS):
        return None
    read, cached, written, said = (_count(usage.get(name)) for name in FIELDS)
    return read, cached, written, said


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value <= MOST else 0


def _usage(used: tuple[int, ...]) -> dict[str, int]:
    read, cached, written, said = used
    cached = min(cached, read)
    written = min(written, read - cached)
    return {
        "input_tokens": read - cached - written,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": said,
    }
