"""What a simulated JetStream holds: streams of messages, in the order in which they were stored.

One node answers from what it holds. Three answer direct gets from a prefix of it, as a replica
that lags does, and know writes that are proposed and not yet stored.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from flightlog.bus.protocol import Message, Outgoing
from flightlog.wire import layout
from flightlog.wire import subject as names
from flightlog.wire.layout import (
    BLOB_STREAM,
    DEAD_STREAM,
    INBOX_STREAM,
    KEYS_STREAM,
    NOTICE_STREAM,
    Layout,
)

NOT_YET = 1 << 60  # the operation that removes what was not removed
LOG = f"{layout.STREAM_PREFIX}0"
_NAMES = (LOG, INBOX_STREAM, KEYS_STREAM, NOTICE_STREAM, BLOB_STREAM, DEAD_STREAM)
_encode = msgspec.json.Encoder().encode


class Entry:
    """A stored message: which operation stored it, which removed it, and who sent it."""

    __slots__ = ("author", "gone", "leaked", "message", "op", "sequence")

    def __init__(self, op: int, message: Message, author: str, *, leaked: bool = False) -> None:
        self.op, self.gone = op, NOT_YET
        self.sequence, self.message = message.sequence, message
        self.author, self.leaked = author, leaked

    def seen(self, op: int) -> bool:
        """Whether a replica that has applied operations up to `op` shows it."""
        return self.op <= op < self.gone


class Stream:
    """One stream: per subject what was stored, and when each operation was applied."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last = 0
        self.full = False
        self.times: list[float] = []  # of each operation, from 1 on
        self.lost: list[Entry] = []  # what a rollback or a broken disk took
        self.lost_at = -1.0
        self.subjects: dict[str, list[Entry]] = {}
        self.proposed: dict[str, Callable[[bool], None]] = {}
        self._one_each = name == KEYS_STREAM
        self._starred = name in (INBOX_STREAM, BLOB_STREAM)

    @property
    def op(self) -> int:
        """The number of the last operation."""
        return len(self.times)

    def as_of(self, time: float) -> int:
        """The last operation applied by then."""
        return bisect_right(self.times, time)

    def entries(self, subject: str) -> list[Entry]:
        """What is stored on the subject now."""
        return [entry for entry in self.subjects.get(subject, ()) if entry.gone == NOT_YET]

    def last_on(self, subject: str) -> int:
        """The stream sequence of the subject's last message, 0 without one."""
        for entry in reversed(self.subjects.get(subject, ())):
            if entry.gone == NOT_YET:
                return entry.sequence
        return 0

    def store(
        self,
        subject: str,
        messages: Sequence[Outgoing],
        author: str,
        time: float,
        *,
        leaked: bool = False,
    ) -> int:
        """Store a group; the stream sequence of its last message."""
        if self._one_each:
            self.purge(subject, self.last + 1, time)
        self.times.append(time)
        op = len(self.times)
        for message in messages:
            self.last += 1
            entry = Entry(op, Message(subject, self.last, message.body), author, leaked=leaked)
            self.subjects.setdefault(subject, []).append(entry)
            if self._starred:
                self.subjects.setdefault(_starred(subject), []).append(entry)
        return self.last

    def purge(self, subject: str, below: int, time: float) -> int:
        """Remove a subject's messages below a stream sequence."""
        doomed = [entry for entry in self.entries(subject) if entry.sequence < below]
        if doomed:
            self.times.append(time)
        for entry in doomed:
            entry.gone = len(self.times)
        return len(doomed)

    def lose(self, count: int, time: float) -> None:
        """Forget the last messages as if they had never been: a rollback, which must not happen."""
        self.last = max(0, self.last - count)
        self.lost_at = time
        for entries in self.subjects.values():
            while entries and entries[-1].sequence > self.last:
                self.lost.append(entries.pop())

    def spoil(self, entry: Entry, time: float, *, edited: bool) -> None:
        """Lose or edit a message in the middle: what a broken disk may do."""
        self.lost_at = time
        self.lost.append(entry)
        entries = self.subjects[entry.message.subject]
        at = entries.index(entry)
        if edited:
            body = entry.message.body.replace(b'"ts":"20', b'"ts":"19')
            message = Message(entry.message.subject, entry.sequence, body)
            entries[at] = Entry(entry.op, message, entry.author)
        else:
            del entries[at]

    def first(self, subject: str, sequence: int, op: int) -> Message | None:
        """The first message on the subject from `sequence` on, as of operation `op`."""
        found = self.scan(subject, sequence, op, 1)[0]
        return found[0] if found else None

    def scan(self, subject: str, sequence: int, op: int, most: int) -> tuple[list[Message], bool]:
        """Up to `most` messages from `sequence` on, and whether there are more, as of `op`."""
        entries = self.subjects.get(subject, [])
        found: list[Message] = []
        for at in range(bisect_left(entries, sequence, key=_sequence), len(entries)):
            if entries[at].op > op:
                break
            if entries[at].seen(op):
                if len(found) == most:
                    return found, True
                found.append(entries[at].message)
        return found, False


class Broker:
    """The streams of a Flightlog layout, and the answers to appends."""

    def __init__(self, replicas: int, *, full_first: bool) -> None:
        self.full_first = full_first
        self.layout = Layout((LOG,), (LOG,) * names.SLOTS, replicas=replicas)
        self.streams = {name: Stream(name) for name in _NAMES}
        self.up = True
        self.leader = True

    @property
    def log(self) -> Stream:
        """The stream of the sessions' logs."""
        return self.streams[LOG]

    def stream_on(self, subject: str) -> Stream:
        """The stream that binds the subject."""
        if subject.startswith("$KV."):
            return self.streams[KEYS_STREAM]
        if subject.startswith(f"{names.PREFIX}.blob."):
            return self.streams[BLOB_STREAM]
        inbox = subject.startswith(f"{names.PREFIX}.inbox.")
        return self.streams[INBOX_STREAM if inbox else LOG]

    def refusal(self, stream: Stream, subject: str, expected: int) -> bytes | None:
        """Why an append is refused, as the server says it; None if the expectation holds."""
        if stream.full and self.full_first:
            return FULL
        if subject in stream.proposed:
            return IN_FLIGHT
        if (last := stream.last_on(subject)) != expected:
            return error(10071, f"wrong last sequence: {last}")
        return FULL if stream.full else None


def _sequence(entry: Entry) -> int:
    return entry.sequence


def _starred(subject: str) -> str:
    return subject.rpartition(".")[0] + ".*"


def ack(stream: Stream, sequence: int) -> bytes:
    """A publish ack."""
    return b'{"stream":"%s","seq":%d}' % (stream.name.encode(), sequence)


def error(code: int, description: str) -> bytes:
    """A publish ack that refuses."""
    told: dict[str, Any] = {"code": 400, "err_code": code, "description": description}
    return _encode({"error": told, "stream": LOG, "seq": 0})


FULL = error(10077, "maximum bytes exceeded")
NO_ROOM = error(10047, "insufficient storage resources available")
IN_FLIGHT = error(10164, "wrong last sequence")
BUSY = tuple(
    error(code, text)
    for code, text in (
        (10176, "atomic publish batch is incomplete and was abandoned"),
        (10210, "too many inflight atomic publish batches"),
        (10211, "too many inflight atomic publish batches for stream"),
    )
)
ODD = (
    error(10158, "stream is offline"),
    error(10077, "write failed: input/output error"),
    error(10008, "jetstream system temporarily unavailable"),
)
