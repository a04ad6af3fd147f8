"""Content too large for a message: what names it, and how it falls into chunks. Pure."""

import hashlib
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

SIZE = 512 * 1024  # bytes of content in a chunk; its frame fits NATS' default message of 1 MiB
LIMIT = 1 << 30  # bytes of one content
_WORD = 32  # bytes of a digest in an index

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]  # it becomes a token of a subject
Kind = Literal["text", "json", "items", "bytes"]


class Blob(Struct, frozen=True, omit_defaults=True):
    """A reference to content that its session keeps beside the log.

    `digest` is the hex SHA-256 of the content, `size` its bytes. `index` names the chunk that lists
    the others; one chunk needs none. `head` is what a text begins with and the content leaves out.
    `kind` is `json` for a value, `items` for several in a row of a list, `bytes` for what stays
    apart.
    """

    digest: Digest
    size: Annotated[int, Meta(ge=0, le=LIMIT)]
    kind: Kind = "bytes"
    index: Digest | None = None
    head: str = ""

    def __str__(self) -> str:
        """What a person is shown in its place."""
        what = f" of {self.kind}" if self.kind != "bytes" else ""
        return f"[{_human(self.size)}{what}, sha256 {self.digest[:8]}…]"


def content_of(blob: Blob) -> Blob:
    """What the reference says of its content, without what stands before that."""
    return replace(blob, head="")


def _human(size: int) -> str:
    if size < 1_000_000:
        return f"{size / 1_000:.1f} kB" if size >= 1_000 else f"{size} bytes"
    return f"{size / 1_000_000:.1f} MB"


def digest_of(content: bytes | memoryview) -> str:
    """The hex SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


def describe(content: bytes, kind: Kind, *, head: str = "", size: int = SIZE) -> Blob:
    """The blob that a content is, stored in chunks of `size` bytes."""
    digests = [digest_of(piece) for piece in pieces(content, size=size)]
    return of_chunks(digests, digest_of(content), len(content), kind, head=head)


def of_chunks(digests: list[str], digest: str, size: int, kind: Kind, *, head: str = "") -> Blob:
    """The blob that consists of these chunks."""
    listed = digest_of(index(digests)) if len(digests) > 1 else None
    return Blob(digest, size, kind, listed, head)


def pieces(content: bytes, *, size: int = SIZE) -> Iterator[memoryview]:
    """The content of each chunk; an empty content is one empty chunk."""
    view = memoryview(content)
    for at in range(0, max(1, len(content)), size):
        yield view[at : at + size]


def index(digests: list[str]) -> bytes:
    """The chunk that lists the others: their digests as words of 32 bytes."""
    return b"".join([bytes.fromhex(digest) for digest in digests])


def listed(content: bytes) -> list[str] | None:
    """The digests that an index lists; None for what is no index."""
    if len(content) % _WORD or not content:
        return None
    return [content[at : at + _WORD].hex() for at in range(0, len(content), _WORD)]
