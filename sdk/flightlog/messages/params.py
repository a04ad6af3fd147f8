"""The fields of model requests beside their messages, and the values that they had before. Pure."""

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET, Raw, UnsetType

from flightlog.messages import patch
from flightlog.messages.patch import Patch

Earlier = dict[str, tuple[Raw, ...]]  # what fields had before, the last value first

LEAST = 1024  # bytes of a value that is worth remembering
MOST = 3  # values that are remembered of a field


def known(params: Mapping[str, Raw], earlier: Earlier | UnsetType, name: str) -> list[Raw]:
    """The values of a field that patches may name, that of the last main request first."""
    before = () if earlier is UNSET else earlier.get(name, ())
    return [*([params[name]] if name in params else []), *before]


def patch_of(value: Raw, known: Sequence[Raw]) -> Patch | None:
    """The value as the patch that saves most; it names the known one by the CRC-32 of its bytes.

    A place among the known would not do: a side request that comes between moves them.
    """
    found = [patch.of(zlib.crc32(raw), raw, bytes(value)) for raw in map(bytes, known)]
    return max(filter(None, found), key=lambda made: made[1] + made[2], default=None)


def patched(patches: Mapping[str, Patch], known: Callable[[str], Sequence[Raw]]) -> dict[str, Raw]:
    """The values that patches make of those that are known, without those that do not fit."""
    found = dict[str, Raw]()
    for name, each in patches.items():
        with contextlib.suppress(*patch.UNFIT):
            named = {zlib.crc32(raw): raw for raw in map(bytes, known(name))}
            found[name] = Raw(patch.applied(each, named[each[0]]))
    return found


def remembered(
    earlier: Earlier | UnsetType, had: Mapping[str, Raw], have: Mapping[str, Raw]
) -> Earlier | UnsetType:
    """The values that fields had, and do not have now, behind those that are known already."""
    before = {} if earlier is UNSET else earlier
    found = Earlier()
    for name in {**before, **had}:
        last = [had[name]] if name in had and len(bytes(had[name])) >= LEAST else []
        behind = [each for each in before.get(name, ()) if each not in last]
        if values := [each for each in (*last, *behind) if each != have.get(name)]:
            found[name] = tuple(values[:MOST])
    return found or UNSET
