"""A fresh process that brings a conversation back, and says what that and its imports took."""

import asyncio
import importlib
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

Messages = list[Any]
Runner = Callable[[str], AbstractAsyncContextManager[Messages]]


def flightlog() -> Runner:
    """Resume a session by its key: from then on it is ours, and no other process can append."""
    from flightlog import connect  # noqa: PLC0415  each racer imports its own, and times that

    @asynccontextmanager
    async def run(key: str) -> AsyncGenerator[Messages]:
        async with connect() as log, log.session(key=key) as s:
            yield s.state.messages()

    return run


def jsonl() -> Runner:
    """Read a file that holds a message a line."""

    @asynccontextmanager
    async def run(path: str) -> AsyncGenerator[Messages]:
        with Path(path).open(encoding="utf-8") as lines:  # noqa: ASYNC230  as its users do
            found = [json.loads(line) for line in lines]
        yield found

    return run


def sqlite() -> Runner:
    """Read what openai-agents' session store keeps."""
    memory = importlib.import_module("agents.memory")  # an extra that may be missing

    @asynccontextmanager
    async def run(path: str) -> AsyncGenerator[Messages]:
        yield list(await memory.SQLiteSession("race", path).get_items())

    return run


async def _race(runner: Runner, target: str, imported: float) -> dict[str, float]:
    began, worked = time.perf_counter(), time.process_time()
    async with runner(target) as messages:
        took, work = time.perf_counter() - began, time.process_time() - worked
    return {"seconds": took, "cpu": work, "imports": imported, "messages": len(messages)}


def main(name: str, target: str) -> None:
    """Run one of the three, and print what it took as JSON."""
    began = time.perf_counter()
    runner = {"flightlog": flightlog, "jsonl": jsonl, "sqlite": sqlite}[name]()
    imported = time.perf_counter() - began
    sys.stdout.write(json.dumps(asyncio.run(_race(runner, target, imported))))


if __name__ == "__main__":
    main(*sys.argv[1:])
