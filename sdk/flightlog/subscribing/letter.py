"""Dead letters: deliveries that a subscriber gave up, kept until they are sent again or dropped."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from flightlog import clock
from flightlog import event as events
from flightlog.bus.answer import Acked, Full
from flightlog.bus.patience import ANSWER_TIMEOUT, pause
from flightlog.bus.protocol import Bus, Message, Outgoing
from flightlog.errors import BusUnavailable, LogFull
from flightlog.wire import subject as names
from flightlog.wire.layout import DEAD_STREAM

DEAD, AGAIN = "dead", "again"  # the types of a letter, and of one that is to be delivered again
REASON_MOST = 500  # characters
_DEADLINE = 30.0  # seconds for a letter to be stored
_AGAIN_LIFE = 7 * 86_400  # seconds that a letter waits for its subscriber once it is sent again


class Letter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which event a subscriber gave up, after how many deliveries, and why. Never a payload.

    `stream` and `sequence` say where the message is; `again` is the time when it was sent again.
    """

    v: int = events.WIRE_VERSION
    name: str
    session_id: str
    seq: int
    type: str
    stream: str
    sequence: int
    attempts: int
    reason: str
    ts: str
    again: str | None = None

    @property
    def id(self) -> str:
        """The id of its delivery: the same, however often it is sent."""
        return delivery_id(self.session_id, self.seq, self.sequence)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Letter).decode


def delivery_id(session: str, seq: int, sequence: int) -> str:
    """What a receiver remembers to drop what it has seen; what has no seq is named by its place."""
    return f"{session}/{seq}" if seq else f"{session}/at-{sequence}"


def read(body: bytes) -> Letter | None:
    """A letter, or None for anything else."""
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        return None


async def bury(bus: Bus, tenant: str, letter: Letter) -> None:
    """Keep a letter; an earlier one of the same delivery is replaced.

    Raises `LogFull` and `BusUnavailable`; doing it again is safe.
    """
    buried = replace(letter, reason=letter.reason[:REASON_MOST])
    await _put(bus, tenant, buried, {"Flightlog-Type": DEAD})


async def send_again(bus: Bus, tenant: str, letter: Letter) -> None:
    """Have its subscriber get the event once more; it is listed no longer.

    Waits a week for a subscriber that is not there. Raises as `bury` does.
    """
    headers = {"Flightlog-Type": AGAIN, "Nats-TTL": f"{_AGAIN_LIFE}s"}
    await _put(bus, tenant, replace(letter, again=events.now()), headers)


async def drop(bus: Bus, tenant: str, name: str, letter: Letter | None = None) -> int:
    """Forget one letter of a subscriber, or all; returns how many."""
    where = (letter.session_id, letter.sequence) if letter is not None else ("*", "*")
    subject = names.dead_subject(tenant, name, *where, prefix=bus.layout.prefix)
    return await bus.purge(DEAD_STREAM, subject, below=2**62)


async def letters(bus: Bus, tenant: str, name: str = "*") -> AsyncIterator[Letter]:
    """The letters of a subscriber, or of all, oldest first; not those that were sent again."""
    subject = names.dead_subject(tenant, name, "*", "*", prefix=bus.layout.prefix)
    more, start = True, 1
    while more:
        page = await bus.page(DEAD_STREAM, subject, start)
        for message in page.messages:
            start = message.sequence + 1
            letter = read(message.body)
            if letter is not None and letter.again is None:
                yield letter
        more = page.more


async def _put(bus: Bus, tenant: str, letter: Letter, headers: dict[str, str]) -> None:
    where = (tenant, letter.name, letter.session_id, letter.sequence)
    subject = names.dead_subject(*where, prefix=bus.layout.prefix)
    message = Outgoing(_encode(letter), headers)
    until, attempt = clock.elapsed() + _DEADLINE, 0
    while attempt == 0 or clock.elapsed() < until:
        before: Message | None = await bus.after(DEAD_STREAM, subject, 0)
        expected = before.sequence if before is not None else 0
        answer = await bus.append(subject, [message], expected=expected, timeout=ANSWER_TIMEOUT)
        match answer:
            case Acked():
                return
            case Full():
                raise LogFull(letter.session_id, DEAD_STREAM)
            case _:
                attempt += 1
                await asyncio.sleep(pause(attempt))
    raise BusUnavailable(DEAD_STREAM, "no ack in time", session=letter.session_id)
