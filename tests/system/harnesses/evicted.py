"""Harnesses that are told to stop: `python -m tests.system.harnesses.evicted KEY FOLDER WHERE`.

None of them knows of signals, but for `own`. Each prints `ready` where the signal is to find it.
"""

import asyncio
import inspect
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import flightlog
from flightlog import Log, Session, Suspended, blocking

KEY = sys.argv[1]


def ready() -> None:
    os.write(1, b"ready\n")  # by one write, as threads say it at the same time


async def hangs(**_: Any) -> None:
    ready()
    await asyncio.Event().wait()


def sleeps(**_: Any) -> None:
    ready()
    time.sleep(60)


async def tool(session: Session, run: Callable[..., Any]) -> None:
    await session.tool_call("work", {}, run=run, call_id="1", on_resume="rerun")


async def in_a_tool(log: Log) -> None:
    async with log.session(key=KEY) as session:
        await tool(session, hangs)


async def in_a_thread(log: Log) -> None:
    async with log.session(key=KEY) as session:
        await tool(session, sleeps)


async def in_a_model_call(log: Log) -> None:
    async with log.session(key=KEY) as session:
        await session.model_call({"model": "m", "messages": []}, call=hangs)


async def in_a_chat(log: Log) -> None:
    async with log.session(key=KEY) as session:
        ready()
        await session.wait()


async def in_two_steps(log: Log) -> None:
    async with log.session(key=KEY) as session, session.calling("work", call_id="1"):
        await hangs()


async def in_a_group(log: Log) -> None:
    """Parallel calls under a TaskGroup, which wraps what they raise."""
    async with log.session(key=KEY) as session, asyncio.TaskGroup() as group:
        group.create_task(session.tool_call("work", {}, run=sleeps, call_id="2"))
        await tool(session, hangs)


async def in_a_child(log: Log) -> None:
    async with log.session(key=KEY) as session:

        async def work() -> None:
            async with session.child(call_id="1") as child:
                await tool(child, hangs)

        await tool(session, work)


async def in_a_server(log: Log) -> None:
    """The sessions are tasks of their own, and the main one waits for something else."""

    async def serve(number: int) -> None:
        async with log.session(key=f"{KEY}-{number}") as session:
            await tool(session, hangs if number == 0 else sleeps)

    tasks = [asyncio.create_task(serve(number)) for number in range(3)]
    await asyncio.Event().wait()
    await asyncio.wait(tasks)


async def deaf(log: Log) -> None:
    """It takes no hint: whatever fails, it opens the next session."""
    for number in range(1000):
        try:
            async with log.session(key=f"{KEY}-{number}") as session:
                await tool(session, hangs)
        except (flightlog.FlightlogError, Suspended):
            pass


async def stubborn(log: Log) -> None:
    """A tool that cannot be stopped."""

    async def never_ends() -> None:
        ready()
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ready()

    async with log.session(key=KEY) as session:
        await tool(session, never_ends)


async def own(log: Log) -> None:
    """It has a handler, which decides what becomes of the work."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with log.session(key=KEY) as session:
        ready()
        await told.wait()
        await session.end("cancelled")
    sys.exit(7)


def naps(awake: Any) -> None:
    awake.set()
    time.sleep(60)


async def forks(log: Log) -> None:
    """A fork dies of SIGTERM as it would without a session in its parent."""
    async with log.session(key=KEY) as session:
        fork = multiprocessing.get_context("fork")
        awake = fork.Event()
        child = fork.Process(target=naps, args=(awake,))
        child.start()
        awake.wait()
        child.terminate()
        child.join()
        await session.end(result=child.exitcode)
    ready()


def without_asyncio() -> None:
    with blocking.connect() as log, log.session(key=KEY) as session:
        session.tool_call("work", {}, run=sleeps, call_id="1", on_resume="rerun")


def waiting_without_asyncio() -> None:
    with blocking.connect() as log, log.session(key=KEY) as session:
        ready()
        session.wait()


async def connected(work: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    async with flightlog.connect() as log:
        await work(log)


if __name__ == "__main__":
    place = globals()[sys.argv[3]]
    if inspect.iscoroutinefunction(place):
        asyncio.run(connected(place))
    else:
        place()
