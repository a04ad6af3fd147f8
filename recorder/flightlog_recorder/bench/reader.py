"""A fresh process that folds one session and says its peak memory in KiB: for the memory rows."""

import asyncio
import resource
import sys

from flightlog import connect


async def read(session: str) -> None:
    """Fold the session from its first event."""
    async with connect() as log:
        await log.state(session)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
    sys.stdout.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
