"""Resuming a long conversation in a new process, against a file and a store that only hold it."""

import asyncio
import contextlib
import importlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

from flightlog_recorder.bench import script
from flightlog_recorder.bench.bed import Bed
from flightlog_recorder.bench.row import Row, spread

RACER = "flightlog_recorder.bench.racer"
KEY = "race"
BEATEN = 1.0  # target, at most
_BESIDE = {"CPU": "cpu", "imports": "imports"}  # what a lap tells beside its time
_PEERS = {"jsonl": "JSONL, json module", "sqlite": "openai-agents' SQLiteSession"}


async def rows(bed: Bed) -> AsyncIterator[Row]:
    """A row for each peer; all three end with the messages that a model call would send."""
    messages = await script.speak(bed.log, KEY, bed.sizes.messages)
    with tempfile.TemporaryDirectory(prefix="flightlog-bench-") as home:
        runners = {"flightlog": KEY, "jsonl": _file(Path(home), messages)}
        if importlib.util.find_spec("agents"):
            runners["sqlite"] = await _database(Path(home), messages)
        laps = await _laps(bed, runners)
    for peer, name in _PEERS.items():
        yield _row(bed, name, laps["flightlog"], laps.get(peer))


def _row(bed: Bed, peer: str, ours: list[Any], theirs: list[Any] | None) -> Row:
    took = [lap["seconds"] for lap in ours]
    floor = [lap["seconds"] for lap in theirs or ()]
    beside = [f"{name} {_by(key, ours, theirs)} ms" for name, key in _BESIDE.items()]
    return Row(
        name=f"resume of {bed.sizes.messages:,} messages, new process",
        unit="ms",
        measured=1000 * median(took),
        floor=1000 * median(floor) if floor else None,
        floor_name=peer if floor else f"{peer}: not installed (flightlog[bench])",
        ratio=median(a / b for a, b in zip(took, floor, strict=True)) if floor else None,
        target=BEATEN if floor else None,
        at_most=True,
        note=", ".join([*beside, spread(took)]),
    )


def _by(key: str, ours: list[Any], theirs: list[Any] | None) -> str:
    """Ours by theirs, in ms."""
    return " by ".join(
        f"{1000 * median(lap[key] for lap in each):.0f}" for each in (ours, theirs) if each
    )


async def _laps(bed: Bed, runners: dict[str, str]) -> dict[str, list[Any]]:
    """Each runs in turn, and none of them always first."""
    laps: dict[str, list[Any]] = {name: [] for name in runners}
    order = list(runners)
    for n in range(1 + bed.sizes.races):
        for name in order[n % len(order) :] + order[: n % len(order)]:
            laps[name].append(await _run(bed, name, runners[name]))
    counts = {lap["messages"] for each in laps.values() for lap in each}
    if counts != {bed.sizes.messages}:
        raise RuntimeError(f"the racers came back with {counts} messages")
    return {name: each[1:] for name, each in laps.items()}


async def _run(bed: Bed, name: str, target: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", RACER, name, target),
        stdout=asyncio.subprocess.PIPE,
        env=bed.environment(),
    )
    said, _ = await process.communicate()
    return json.loads(said)


def _file(home: Path, messages: list[Any]) -> str:
    path = home / "race.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    return str(path)


async def _database(home: Path, messages: list[Any]) -> str:
    memory = importlib.import_module("agents.memory")
    path = str(home / "race.db")
    with contextlib.closing(memory.SQLiteSession("race", path)) as session:
        await session.add_items(messages)
    return path
