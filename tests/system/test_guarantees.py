"""The guarantees name the tests that would fail; these must exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z]+/test_[a-z_]+\.py)::(test_\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=[test for _, test in NAMED])
def test_a_test_that_a_guarantee_names_exists(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (TESTS / file).read_text(), re.MULTILINE)


def test_every_guarantee_is_stated_and_names_a_test() -> None:
    parts = re.split(r"^## (G\d+) ", PAGE.partition("\n# ")[0], flags=re.MULTILINE)[1:]
    stated = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(stated) == [f"G{n}" for n in range(1, 11)]
    for name, text in stated.items():
        assert "::test_" in text, f"{name} names no test"
