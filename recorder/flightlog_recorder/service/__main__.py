"""`python -m flightlog_recorder.service`: settings from the environment, exit 3 without a start."""

import asyncio
import logging
import sys

from flightlog.errors import FlightlogError
from flightlog_recorder.service import service, settings


def main() -> int:
    """Run the recorder."""
    if sys.argv[1:]:
        sys.stderr.write("flightlog_recorder.service takes no arguments: set FLIGHTLOG_*\n")
        return 2
    try:
        found = settings.load()
        logging.basicConfig(level=found.log_level, format="%(asctime)s %(levelname)s %(message)s")
        asyncio.run(service.serve(found))
    except (FlightlogError, settings.BadSettings, OSError) as exc:
        sys.stderr.write(f"flightlog_recorder: {exc}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
