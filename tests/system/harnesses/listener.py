"""A subscriber that writes down what it hears before it acknowledges it: listener.py FILE."""

import asyncio
import json
import sys
from pathlib import Path

import flightlog
from flightlog import Delivery

FILE = Path(sys.argv[1])


@flightlog.subscriber("n", parallel=4)
def listen(delivery: Delivery) -> None:
    with FILE.open("a") as heard:
        heard.write(json.dumps([delivery.event.session_id, delivery.event.seq]) + "\n")


async def main() -> None:
    async with flightlog.connect() as log:
        await flightlog.serve(log, listen)


asyncio.run(main())
