"""A harness that works on while others take its session: `zombie.py KEY FOLDER`.

Runs an endless tool, appends a note whenever FOLDER/note appears, and says how it ended.
"""

import asyncio
import json
import sys
from pathlib import Path

import flightlog
from flightlog import FlightlogError, Session

FOLDER = Path(sys.argv[2])


def say(**words: str) -> None:
    with (FOLDER / "said").open("a") as said:
        said.write(json.dumps(words) + "\n")


async def endless() -> None:
    say(tool="started")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        say(tool="cancelled")
        raise


async def note_when_told(session: Session) -> None:
    while not (FOLDER / "note").exists():
        await asyncio.sleep(0.005)
    try:
        await session.append("note", "from the zombie")
        say(note="stored")
    except FlightlogError as exc:
        say(note=type(exc).__name__)


async def main() -> None:
    async with flightlog.connect() as log, log.session(key=sys.argv[1]) as session:
        try:
            await asyncio.gather(
                session.tool_call("endless", call_id="c", run=endless),
                note_when_told(session),
            )
        except FlightlogError as exc:
            say(call=type(exc).__name__)
            await note_when_told(session)


if __name__ == "__main__":
    asyncio.run(main())
