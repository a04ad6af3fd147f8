"""nats-py's parser, with a short way for stored messages: a page is made of bytes, at once.

nats-py itself deletes each message from the head of its buffer, reads its headers one character at
a time, and hands it on through a queue and a task.
"""

from typing import Any

from nats.protocol import parser as nats_parser

from flightlog.bus.protocol import Message

_BREAK = b"\r\n"
_SUBJECT, _SEQUENCE = b"\r\nNats-Subject: ", b"\r\nNats-Sequence: "
_KEPT = 1 << 16  # bytes of a message that is waited for here: it is copied with each arrival


class Parser(nats_parser.Parser):
    """What the server sends; `pages` are the reads under way, by the subject they are answered on.

    Only messages that begin at the head of what arrived go the short way. The rest goes nats-py's,
    and comes to the same page from there.
    """

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.pages: dict[bytes, list[Message]] = {}

    def reset(self) -> None:
        """Forget what arrived of a message: its connection is gone."""
        super().reset()
        self._begun = b""

    async def parse(self, data: bytes = b"") -> None:
        """Take what arrived."""
        if self.state == nats_parser.AWAITING_MSG_PAYLOAD:
            missing = self.needed + len(_BREAK) - len(self.buf)
            await super().parse(data[:missing])
            data = data[missing:]
        if self.pages and not self.buf:
            data = self._turn(self._begun + data)
        elif self._begun:
            data, self._begun = self._begun + data, b""
        if data:
            await super().parse(data)

    def _turn(self, data: bytes) -> bytes:
        """Put the messages at the head of `data` on their pages; what is not for a page is left."""
        at, end, self._begun = 0, len(data), b""
        while data.startswith(b"HMSG ", at) and (line := data.find(_BREAK, at)) > 0:
            said = data[at:line].split(b" ")
            page, begin = self.pages.get(said[1]), line + 2
            body, behind = begin + int(said[-2]), begin + int(said[-1])
            if page is None:
                break
            if behind + 2 > end:
                if behind - at > _KEPT:
                    break
                self._begun = data[at:]
                return b""
            message = _stored(data, begin, body, behind)
            if message is None:
                break
            page.append(message)
            at = behind + 2
        return data[at:]


def stored(head: bytes, body: bytes) -> Message | None:
    """The stored message that a direct get is answered with, or None for a status (ADR-31)."""
    return _stored(head + body, 0, len(head), len(head) + len(body))


def _stored(data: bytes, begin: int, body: int, behind: int) -> Message | None:
    """The message whose headers begin at `begin`, and its body at `body`.

    The server's headers stand behind those that the author gave, the sequence behind the subject.
    """
    subject = data.rfind(_SUBJECT, begin, body) + len(_SUBJECT)
    sequence = data.find(_SEQUENCE, subject, body)
    if subject < begin + len(_SUBJECT) or sequence < 0:
        return None
    number = sequence + len(_SEQUENCE)
    return Message(
        data[subject:sequence].decode(),
        int(data[number : data.find(_BREAK, number)]),
        data[body:behind],
    )
