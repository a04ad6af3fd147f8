"""Where the subscribers of a broker stand: what waits for them, what they gave up."""

import json
from collections import Counter

from msgspec import Struct

from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.notices import consumers
from flightlog.errors import BusUnavailable
from flightlog.subscribing.letter import letters
from flightlog.wire import subject as names
from flightlog.wire.layout import DEAD_STREAM, NOTICE_STREAM

_NO_SUCH_CONSUMER = 10014


class Standing(Struct, frozen=True):
    """One subscriber: messages it has not been given, those it has in hand, its dead letters."""

    tenant: str
    name: str
    waiting: int
    in_hand: int
    dead: int

    @property
    def lag(self) -> int:
        """Messages that it has not settled; also those whose types it will not ask to see."""
        return self.waiting + self.in_hand


def streams(bus: NatsBus) -> tuple[str, ...]:
    """The streams in which a subscriber has a consumer each."""
    return (*bus.layout.streams, NOTICE_STREAM, DEAD_STREAM)


async def standings(bus: NatsBus, tenant: str | None = None) -> list[Standing]:
    """Every subscriber, or those of a tenant, as the leaders of the streams show them."""
    waiting, in_hand, dead = Counter[str](), Counter[str](), Counter[str]()
    for stream in streams(bus):
        async for row in consumers(bus, stream):
            name = str(row["name"])
            waiting[name] += int(row.get("num_pending", 0))
            in_hand[name] += int(row.get("num_ack_pending", 0))
    for whose in await _tenants(bus):
        async for letter in letters(bus, whose):
            dead[names.durable(whose, letter.name)] += 1
    found = [
        Standing(whose, name, waiting[each], in_hand[each], dead[each])
        for each in sorted({*waiting, *dead})
        for name, _, whose in [each.partition("@")]
        if whose
    ]
    return [each for each in found if tenant in (None, each.tenant)]


async def _tenants(bus: NatsBus) -> set[str]:
    """Whose subscribers have letters, sent again or not."""
    prefix = f"{bus.layout.prefix}.dead."
    pages = [page async for page in bus.subjects(DEAD_STREAM)]
    return {subject.removeprefix(prefix).split(".")[0] for page in pages for subject in page}


async def remove(bus: NatsBus, tenant: str, name: str) -> int:
    """Forget a subscriber: what waits for it is not delivered, and no purge waits for it any more.

    Returns in how many streams it was known. Its dead letters stay. A process that still runs under
    the name makes it again: stop it first.
    """
    gone = 0
    for stream in streams(bus):
        place = f"{stream}.{names.durable(tenant, name)}"
        answered = await bus.api(f"CONSUMER.DELETE.{place}", json.dumps({}).encode())
        error = answered.get("error", {})
        if error and error.get("err_code") != _NO_SUCH_CONSUMER:
            raise BusUnavailable(stream, str(error.get("description")))
        gone += not error
    return gone
