"""When a floor tells that Redis lost writes."""

import pytest

from flightlog.cache.floor import Floor
from flightlog_projector.keeper import lowers


@pytest.mark.parametrize(
    ("last", "found", "lost"),
    [
        (None, None, True),
        (None, Floor("g", 5), True),
        (Floor("g", 5), None, True),
        (Floor("g", 5), Floor("h", 5), True),
        (Floor("g", 5), Floor("g", 4), True),
        (Floor("g", 5), Floor("g", 5), False),
        (Floor("g", 5), Floor("g", 6), False),
    ],
)
def test_only_the_floor_last_seen_or_that_one_raised_is_trusted(
    last: Floor | None, found: Floor | None, lost: bool
) -> None:
    assert lowers(last, found) is lost
