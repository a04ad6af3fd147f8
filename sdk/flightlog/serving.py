"""Serving: the functions that `@subscriber` declared, run on what comes."""

from collections.abc import Callable
from typing import Any

from flightlog.log import Log
from flightlog.subscribing.subscriber import declared
from flightlog.subscribing.subscription import Subscription, together


async def serve(log: Log, *functions: Callable[..., Any]) -> None:
    """Call each function that `@subscriber` declared with the deliveries that it asked for.

    Goes on until it is cancelled, over restarts of the broker. What is in hand then comes again in
    30 s. Raises `NotPermitted`, or what a `where` raised.
    """
    found = [(each, declared(each)) for each in functions]
    await together(
        [
            Subscription(log.bus, log.tenant, said.interest).run(each, parallel=said.parallel)
            for each, said in found
        ]
    )
