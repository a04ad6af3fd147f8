"""The Codex rollouts that tests read: hand-made ones, and real ones where they are."""

from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent / "data" / "codex"
SHARED = Path(__file__).parents[3] / "shared" / "samples" / "codex"
REAL = sorted(SHARED.rglob("*.jsonl"))
ABSENT = pytest.mark.skip(reason="real rollouts are not here: ../shared/samples/codex")
SAMPLES: list[Any] = [*sorted(DATA.glob("*.jsonl")), *REAL]

every_rollout = pytest.mark.parametrize(
    "path",
    SAMPLES if REAL else [*SAMPLES, pytest.param(SHARED, marks=ABSENT)],
    ids=lambda p: p.stem,
)
