"""Counts, for Prometheus, what waits for each subscriber and what it gave up."""

import asyncio
import logging

from flightlog.bus.nats_bus import NatsBus
from flightlog.errors import FlightlogError
from flightlog.subscribing.standing import Standing, standings
from flightlog_recorder.service.metrics import Metrics

EVERY = 10.0  # seconds between two looks

_log = logging.getLogger("flightlog.recorder")


async def watch(bus: NatsBus, metrics: Metrics, *, every: float = EVERY) -> None:
    """Look again and again, until cancelled; what the broker does not tell now is told later."""
    while True:
        try:
            note(metrics, await standings(bus))
        except FlightlogError as exc:
            _log.warning("subscribers were not counted: %s", exc)
        await asyncio.sleep(every)


def note(metrics: Metrics, found: list[Standing]) -> None:
    """Set the gauges; those of subscribers that were removed go."""
    for gauge in (metrics.lag, metrics.in_hand, metrics.letters):
        gauge.clear()
    for each in found:
        metrics.lag.labels(each.tenant, each.name).set(each.lag)
        metrics.in_hand.labels(each.tenant, each.name).set(each.in_hand)
        metrics.letters.labels(each.tenant, each.name).set(each.dead)
