"""Tokens, as providers count them, and what they cost, where a response says so."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

_DECIMALS = 9  # of a dollar: a token costs at least a hundredth of a millionth
_MOST_DOLLARS = 1e9
_Tokens = Annotated[int, Meta(ge=0, le=2**53)] | None


class Usage(Struct, frozen=True):
    """Tokens of all model calls of a session, side calls included.

    A fork's are its own: they begin at nothing behind `session_forked`, as its source has used and
    paid what it copied. So sums over sessions, forks and their sources among them, count each once.
    `input_tokens` does not count what was read from or written to the provider's cache. `cost`, in
    US dollars, is the sum of what the responses' usage told as `cost`; unset if none did.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | UnsetType = UNSET

    @property
    def dollars(self) -> float | None:
        """The cost in US dollars; None where no response told one."""
        return None if self.cost is UNSET else self.cost

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            _summed(self.cost, other.cost),
        )


def _summed(one: float | UnsetType, other: float | UnsetType) -> float | UnsetType:
    if one is UNSET or other is UNSET:
        return other if one is UNSET else one
    return round(one + other, _DECIMALS)


class _Cached(Struct):
    cached_tokens: _Tokens = None


class _Counted(Struct):
    """Anthropic's fields, then OpenAI's, whose prompt counts what was read from the cache."""

    input_tokens: _Tokens = None
    output_tokens: _Tokens = None
    cache_read_input_tokens: _Tokens = None
    cache_creation_input_tokens: _Tokens = None
    prompt_tokens: _Tokens = None
    completion_tokens: _Tokens = None
    prompt_tokens_details: _Cached | None = None
    cost: Any = None


NONE = Usage()
_COUNTS = tuple(name for name in Usage.__struct_fields__ if name != "cost")
_decoder = msgspec.json.Decoder(_Counted)


def of(raw: Raw) -> Usage:
    """The usage of one response; what cannot be read counts as nothing."""
    try:
        found = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NONE
    cost = _dollars(found.cost)
    if found.prompt_tokens is not None and found.input_tokens is None:
        return msgspec.structs.replace(_prompted(found), cost=cost)
    return Usage(
        found.input_tokens or 0,
        found.output_tokens or 0,
        found.cache_read_input_tokens or 0,
        found.cache_creation_input_tokens or 0,
        cost,
    )


def _dollars(told: Any) -> float | UnsetType:
    """A cost as OpenRouter reports it; what is no sum of money costs no tokens their count."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return UNSET
    return round(float(told), _DECIMALS) if 0 <= told <= _MOST_DOLLARS else UNSET


def _prompted(found: _Counted) -> Usage:
    details = found.prompt_tokens_details
    cached = min(details.cached_tokens or 0 if details else 0, found.prompt_tokens or 0)
    return Usage((found.prompt_tokens or 0) - cached, found.completion_tokens or 0, cached)


def counts(used: Usage) -> dict[str, int]:
    """The tokens, as a row of the catalog holds them."""
    return {name: getattr(used, name) for name in _COUNTS}


def counted(counts: Mapping[str, int], cost: float | None) -> Usage:
    """The usage that a row of the catalog holds."""
    tokens = {name: counts.get(name, 0) for name in _COUNTS}
    return msgspec.structs.replace(Usage(**tokens), cost=UNSET if cost is None else cost)
