"""Processes released at once, each with a session of its own and one that all want: `crowd.py N`.

Forked, so that all are at the door when it opens, instead of one interpreter start after the other.
"""

import asyncio
import json
import os
import sys
from typing import Any

import flightlog

EVENTS = 5  # that each appends to its own session, at once
PATIENCE = 30.0  # seconds to connect: most of it is waiting for a turn on the processor


async def member(n: int) -> dict[str, Any]:
    said: dict[str, Any] = {"n": n, "acked": {}}
    async with flightlog.connect(timeout=PATIENCE) as log:
        async with log.session(key=f"own-{n}") as own:
            notes = await asyncio.gather(*(own.append("note", m) for m in range(EVENTS)))
            said["own"] = own.id
            said["acked"][own.id] = [(each.seq, each.digest) for each in notes]
            await own.end()
        try:
            async with log.session(key="shared") as shared:
                said["shared"] = shared.id
                note = await shared.append("note", n)
                said["acked"][shared.id] = [(note.seq, note.digest)]
        except flightlog.Fenced as exc:
            said["shared"] = exc.session  # two resumers never take turns
    return said


def released(n: int, door: int) -> None:
    """Wait at the door, do it, say what came of it in one line, and be gone."""
    os.read(door, 1)
    try:
        said = asyncio.run(member(n))
    except flightlog.FlightlogError as exc:
        said = {"n": n, "failed": f"{type(exc).__name__}: {exc}"}
    os.write(sys.stdout.fileno(), f"{json.dumps(said)}\n".encode())
    os._exit("failed" in said)


def main() -> None:
    door, key = os.pipe()
    for n in range(int(sys.argv[1])):
        if os.fork() == 0:
            os.close(key)
            released(n, door)
    os.close(key)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
