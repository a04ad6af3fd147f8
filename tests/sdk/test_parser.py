"""What the server sends, cut anywhere: pages get their messages, everyone else gets the rest."""

import random
from typing import Any

import pytest

from flightlog.bus.parser import Parser, stored
from flightlog.bus.protocol import Message

PAGE, OTHER = b"_INBOX.me.1", b"_INBOX.me.2"


class Client:
    """The client that a parser hands to: it does what ours does, and notes the rest."""

    def __init__(self) -> None:
        self.parser = Parser(self)
        self.noted: list[Any] = []

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None
    ) -> None:
        page = self.parser.pages.get(subject)
        if page is not None and (message := stored(headers or b"", data)):
            page.append(message)
        else:
            self.noted.append((sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.noted.append("ping")


def hmsg(subject: bytes, head: bytes, body: bytes, *, reply: bytes = b"") -> bytes:
    to = b" ".join([subject, b"7", *([reply] if reply else [])])
    sizes = b"%d %d" % (len(head), len(head) + len(body))
    return b"HMSG " + to + b" " + sizes + b"\r\n" + head + body + b"\r\n"


def found(sequence: int, *, extra: bytes = b"") -> bytes:
    lines = b"Nats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: %d\r\nNats-Num-Pending: 1\r\n"
    return b"NATS/1.0\r\n" + extra + lines % sequence + b"\r\n"


EOB = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 9\r\n\r\n"
BODIES = [b"", b"\r\n", b"HMSG x 1 2 3\r\n", b"x" * 300]
SENT = b"".join(
    [
        *[hmsg(PAGE, found(n), body) for n, body in enumerate(BODIES, 1)],
        b"PING\r\n",
        b"MSG heard 3 5\r\nhello\r\n",
        hmsg(PAGE, found(5), b"behind"),
        hmsg(OTHER, found(6), b"nobody's page", reply=b"to.me"),
        hmsg(PAGE, found(7, extra=b"Nats-Sequence: 1\r\nNats-Subject: no\r\n"), b"forged"),
        hmsg(PAGE, EOB, b""),
    ]
)
WANTED = [
    *[Message("a.b", n, body) for n, body in enumerate(BODIES, 1)],
    Message("a.b", 5, b"behind"),
    Message("a.b", 7, b"forged"),
]
NOTED = [
    "ping",
    (3, b"heard", b"", b"hello", None),
    (7, OTHER, b"to.me", b"nobody's page", found(6)),
    (7, PAGE, b"", b"", EOB),
]


async def parsed(pieces: list[bytes]) -> tuple[list[Message], list[Any]]:
    client = Client()
    page = client.parser.pages[PAGE] = list[Message]()
    for piece in pieces:
        await client.parser.parse(piece)
    assert not client.parser.buf
    return page, client.noted


async def test_what_arrives_in_one_piece_is_told_apart() -> None:
    assert await parsed([SENT]) == (WANTED, NOTED)


async def test_it_makes_no_difference_where_what_arrives_is_cut() -> None:
    for at in range(1, len(SENT)):
        assert await parsed([SENT[:at], SENT[at:]]) == (WANTED, NOTED), at


@pytest.mark.parametrize("seed", range(50))
async def test_nor_into_how_many_pieces(seed: int) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(1, len(SENT)), rng.randrange(2, 200)))
    pieces = [SENT[a:b] for a, b in zip([0, *cuts], [*cuts, len(SENT)], strict=True)]
    assert await parsed(pieces) == (WANTED, NOTED)


async def test_what_was_begun_for_a_page_that_is_given_up_goes_the_long_way() -> None:
    client = Client()
    client.parser.pages[PAGE] = []
    await client.parser.parse(SENT[:200])
    del client.parser.pages[PAGE]
    await client.parser.parse(SENT[200:])
    assert len(client.noted) == len(WANTED) + len(NOTED) - 1
    assert client.noted[-1] == NOTED[-1]


async def test_what_was_begun_is_forgotten_with_its_connection() -> None:
    client = Client()
    page = client.parser.pages[PAGE] = list[Message]()
    await client.parser.parse(SENT[:200])
    client.parser.reset()
    await client.parser.parse(SENT)
    assert page[1:] == WANTED
    assert client.noted == NOTED


async def test_a_large_message_in_many_pieces_comes_to_its_page() -> None:
    client, body = Client(), b"large" * 40_000
    page = client.parser.pages[PAGE] = list[Message]()
    sent = hmsg(PAGE, found(1), body) + hmsg(PAGE, found(2), b"behind")
    for at in range(0, len(sent), 32_768):
        await client.parser.parse(sent[at : at + 32_768])
    assert page == [Message("a.b", 1, body), Message("a.b", 2, b"behind")]


async def test_without_a_page_under_way_everything_goes_the_long_way() -> None:
    client = Client()
    await client.parser.parse(SENT)
    assert len(client.noted) == len(WANTED) + len(NOTED)


def test_a_status_is_no_message_and_a_status_in_a_stored_header_is() -> None:
    assert stored(EOB, b"") is None
    assert stored(b"NATS/1.0 503\r\n\r\n", b"") is None
    forged = found(3).replace(b"NATS/1.0", b"NATS/1.0 204 EOB", 1)
    assert stored(forged, b"x") == Message("a.b", 3, b"x")
