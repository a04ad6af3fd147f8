"""nats-py's parser, with a short way for stored messages: a page is made of bytes, at once.

nats-py itself deletes each message from the head of its buffer, reads its headers one character at
a time, and hands it on through a queue and a task.
"""

from typing import Any

from nats.protocol import parser as nats_parser

from flightlog.bus.protocol import Message

_BREAK = b"\r\n"


class Parser(nats_parser.Parser):
    """What the server sends; `pages` are the reads under way, by the subject they are answered on.

    Only whole messages at the head of what arrived go the short way. The rest goes nats-py's, and
    comes to the same page from there.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.pages: dict[bytes, list[Message]] = {}

    async def parse(self, data: bytes = b"") -> None:
        """Take what arrived."""
        if self.state == nats_parser.AWAITING_MSG_PAYLOAD:
            missing = self.needed + len(_BREAK) - len(self.buf)
            await super().parse(data[:missing])
            data = data[missing:]
        if self.pages and not self.buf:
            data = data[self._turn(data) :]
        if data:
            await super().parse(data)

    def _turn(self, data: bytes) -> int:
        """Put the messages at the head of `data` on their pages; how many bytes that were."""
        at, end = 0, len(data)
        while data.startswith(b"HMSG ", at) and (line := data.find(_BREAK, at)) > 0:
            _, subject, *_, head, size = data[at:line].split(b" ")
            page, begin = self.pages.get(subject), line + 2
            behind = begin + int(size)
            if page is None or behind + 2 > end:
                break
            body = begin + int(head)
            message = stored(data[begin:body], data[body:behind])
            if message is None:
                break
            page.append(message)
            at = behind + 2
        return at


def stored(head: bytes, body: bytes) -> Message | None:
    """The stored message that a direct get is answered with, or None for a status (ADR-31).

    The server's headers stand behind those that the author gave, the sequence behind the subject.
    """
    _, _, tail = head.rpartition(b"\r\nNats-Subject: ")
    subject, _, tail = tail.partition(b"\r\nNats-Sequence: ")
    sequence, found, _ = tail.partition(_BREAK)
    return Message(subject.decode(), int(sequence), body) if found else None
