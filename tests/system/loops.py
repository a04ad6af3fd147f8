"""Loops of every kind: run whole, killed in one place, resumed, and what is left in the end."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flightlog
from flightlog import Event, Log
from flightlog.wire.carry import unpack
from flightlog_recorder.embedded import Servers
from tests.scripted import TENANT, chain_is_whole, stored
from tests.system.harnesses import doom

ROOT = Path(__file__).parents[2]
AT_ONCE = 3  # processes at once
SECONDS = 60.0  # for one run on a busy machine; a whole one takes about one


@dataclass(frozen=True)
class Outcome:
    """What must not depend on where the process died."""

    status: str
    result: Any
    messages: list[dict[str, Any]]
    effects: dict[str, int]


@dataclass(frozen=True)
class Loop:
    """One kind of loop: a script of `harnesses`, run on servers of the test."""

    script: str
    servers: Servers
    root: Path
    parallel: bool = False

    def folder(self, key: str) -> Path:
        """Where the side effects of that session's tools are."""
        folder = self.root / key
        folder.mkdir(exist_ok=True)
        return folder

    async def start(self, key: str, *more: str, die: str = "") -> asyncio.subprocess.Process:
        """Run the script; with `die` until it kills itself there."""
        environment = os.environ | self.servers.environment()
        environment |= {"FLIGHTLOG_TENANT": TENANT, doom.DIE: die}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"tests.system.harnesses.{self.script}",
            key,
            str(self.folder(key)),
            *more,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, key: str, *, die: str = "") -> None:
        """Run the script to its end, or until it has killed itself."""
        process = await self.start(key, die=die)
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
        assert process.returncode == (-signal.SIGKILL if die else 0), (die, said.decode())

    async def outcome(self, log: Log, key: str) -> Outcome:
        """How the session stands, once nothing dangles in it."""
        session = await log.look_up(key)
        assert session is not None
        state = await log.state(session)
        events = await stored(log, session)
        assert chain_is_whole(events)
        assert not [call for call in state.calls if call.phase != "done"]
        assert state.open_request is None
        assert_no_run_unrecorded(events, doom.effects(self.folder(key)))
        effects = Counter(doom.effects(self.folder(key)))
        if self.parallel:  # a call beside the one that died may have run just so far
            effects = Counter(set(effects))
        return Outcome(state.status, unpack(state.result), state.messages(), dict(effects))

    async def same_wherever_it_dies(self, places: Iterable[str]) -> None:
        """Kill it in each place and run it again: it ends as a run that nobody disturbed.

        A place that is a side effect has happened when it dies there: once more, as `rerun` says.
        """
        async with flightlog.connect(nats=self.servers.nats_url, tenant=TENANT) as log:
            await self.run("whole")
            whole = await self.outcome(log, "whole")
            assert whole.status == "completed"
            assert set(whole.effects.values()) == {1}
            turns = asyncio.Semaphore(AT_ONCE)

            async def dies(place: str) -> None:
                async with turns:
                    await self.run(key_of(place), die=place)
                    await self.run(key_of(place))
                    again = {place: 2} if place in whole.effects and not self.parallel else {}
                    expected = replace(whole, effects=whole.effects | again)
                    assert await self.outcome(log, key_of(place)) == expected, place

            async with asyncio.TaskGroup() as group:
                for place in places:
                    group.create_task(dies(place))


def key_of(place: str) -> str:
    """The key of the session that dies in this place."""
    return "dies-" + place.replace(" ", "-").replace(":", "-")


def assert_no_run_unrecorded(events: list[Event], effects: list[str]) -> None:
    """A tool runs once for each tool_call in the log at most, and only behind it."""
    started = Counter(e.payload["call_id"] for e in events if e.type == "tool_call")
    for call_id, times in Counter(effects).items():
        assert call_id not in started or times <= started[call_id], call_id
