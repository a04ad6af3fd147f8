"""`python -m flightlog_projector`: settings from the environment, exit 3 if it cannot start."""

import asyncio
import logging
import sys

from flightlog.errors import FlightlogError
from flightlog_projector import service, settings


def main() -> int:
    """Run the projector."""
    if sys.argv[1:]:
        sys.stderr.write("flightlog_projector takes no arguments: it is set by FLIGHTLOG_*\n")
        return 2
    try:
        found = settings.load()
        projections = settings.projections(found)
        logging.basicConfig(level=found.log_level, format="%(asctime)s %(levelname)s %(message)s")
        asyncio.run(service.serve(found, projections))
    except (FlightlogError, settings.BadSettings, OSError) as exc:
        sys.stderr.write(f"flightlog_projector: {exc}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
