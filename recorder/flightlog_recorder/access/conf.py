"""Settings of nats-server as text that people read."""

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_STEP = "  "


class Variable(Struct, frozen=True):
    """A value that the server looks up: among its settings, then in its environment."""

    name: str


Conf = str | int | Variable | Sequence["Conf"] | Mapping[str, "Conf"]


def render(settings: Mapping[str, Conf], *, depth: int = 0) -> str:
    """The settings as the lines of a block."""
    return "".join(f"{_STEP * depth}{_entry(*each, depth)}\n" for each in settings.items())


def _entry(name: str, value: Conf, depth: int) -> str:
    key = name if _BARE.fullmatch(name) else json.dumps(name)
    separator = " " if isinstance(value, Mapping) else ": "
    return f"{key}{separator}{_value(value, depth)}"


def _value(value: Conf, depth: int) -> str:
    match value:
        case Variable(name):
            return f"${name}"
        case str() | int():
            return json.dumps(value)
        case Mapping():
            return f"{{\n{render(value, depth=depth + 1)}{_STEP * depth}}}"
        case _:
            inner = _STEP * (depth + 1)
            rows = "".join(f"{inner}{_value(each, depth + 1)}\n" for each in value)
            return f"[\n{rows}{_STEP * depth}]"
