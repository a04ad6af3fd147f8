"""Opens a key and says what came of it: `opener.py KEY`."""

import asyncio
import json
import sys

import flightlog


async def main() -> None:
    said: dict[str, str] = {}
    try:
        async with flightlog.connect() as log, log.session(key=sys.argv[1]) as session:
            said = {"id": session.id}
            await session.append("note", "here")
    except flightlog.FlightlogError as exc:
        said |= {"error": type(exc).__name__}
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
