"""Tokens, as providers count them."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

_Tokens = Annotated[int, Meta(ge=0, le=2**53)] | None


class Usage(Struct, frozen=True):
    """Tokens of all model calls of a session, side calls included.

    `input_tokens` does not count what was read from or written to the provider's cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


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


NONE = Usage()
_decoder = msgspec.json.Decoder(_Counted)


def of(raw: Raw) -> Usage:
    """The usage of one response; what cannot be read counts as nothing."""
    try:
        found = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NONE
    if found.prompt_tokens is not None and found.input_tokens is None:
        return _prompted(found)
    return Usage(
        found.input_tokens or 0,
        found.output_tokens or 0,
        found.cache_read_input_tokens or 0,
        found.cache_creation_input_tokens or 0,
    )


def _prompted(found: _Counted) -> Usage:
    details = found.prompt_tokens_details
    cached = min(details.cached_tokens or 0 if details else 0, found.prompt_tokens or 0)
    return Usage((found.prompt_tokens or 0) - cached, found.completion_tokens or 0, cached)


def counted(counts: dict[str, int]) -> Usage:
    """The usage that a row of the catalog holds."""
    return Usage(**{name: counts.get(name, 0) for name in Usage.__struct_fields__})
