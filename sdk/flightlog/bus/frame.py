"""What a NATS client writes to its server: one message as the bytes of one frame."""

import functools
import re
from collections.abc import Mapping

_WHITE = re.compile(r"\s")


def header_block(fields: Mapping[str, str]) -> bytes:
    """Header lines as a message carries them; a line break in a value becomes a space."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields.items()])
    if lines.count("\r") + lines.count("\n") > 2 * len(fields):  # one would end its line
        return header_block({name: " ".join(value.split()) for name, value in fields.items()})
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def publication(subject: str, body: bytes, *, headers: bytes = b"", reply: bytes = b"") -> bytes:
    """The frame that publishes a message; raises `ValueError` for what is no subject."""
    to, size = _encoded(subject), len(headers) + len(body)
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (to, reply, size, body)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (to, reply, len(headers), size, headers, body)


@functools.lru_cache(maxsize=1_024)  # all of a batch go to one
def _encoded(subject: str) -> bytes:
    if not subject or _WHITE.search(subject):
        raise ValueError("a subject is not empty and holds no white space")
    return subject.encode()
