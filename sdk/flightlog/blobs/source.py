"""What a blob's content is read from: bytes, a binary file, or something that gives pieces."""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, BinaryIO, TypeGuard

from flightlog.errors import InvalidValue
from flightlog.wire import chunk

Source = bytes | BinaryIO | AsyncIterable[bytes] | Iterable[bytes]

_END = object()
_WHAT = "what is attached"
_WANTED = "give bytes, a file that is opened as 'rb', or something that yields bytes"


def is_file(source: Source) -> TypeGuard[BinaryIO]:
    """Whether it is read as a file."""
    return callable(getattr(source, "read", None)) and not isinstance(source, AsyncIterable)


def left(file: BinaryIO) -> int:
    """Bytes from where a file stands to its end; 0 for one that cannot tell."""
    seekable = getattr(file, "seekable", None)
    if not callable(seekable) or not seekable():
        return 0
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here


async def parts(source: Source) -> AsyncIterator[memoryview]:
    """Yield all of it, in pieces as they come. Raises `InvalidValue` for what gives no bytes."""
    async for part in _parts(source):
        try:
            yield memoryview(part).cast("B")
        except TypeError:
            why = f"it gives {type(part).__name__}, not bytes; {_WANTED}"
            raise InvalidValue(_WHAT, why) from None


async def _parts(source: Any) -> AsyncIterator[Any]:
    if isinstance(source, bytes | bytearray | memoryview):
        yield source
    elif isinstance(source, AsyncIterable):
        async for part in source:
            yield part
    elif is_file(source):
        while part := await asyncio.to_thread(source.read, chunk.SIZE):
            yield part
    elif isinstance(source, Iterable) and not isinstance(source, str):
        pieces = iter(source)
        while (part := await asyncio.to_thread(next, pieces, _END)) is not _END:
            yield part
    else:
        raise InvalidValue(_WHAT, f"it is {type(source).__name__}; {_WANTED}")


async def recut(parts: AsyncIterator[memoryview], size: int) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `size`; nothing at all is one empty piece."""
    waiting, is_first = bytearray(), True
    async for part in parts:
        for at in range(0, len(part), size):
            waiting += part[at : at + size]
            while len(waiting) >= size:
                yield bytes(waiting[:size])
                is_first = False
                del waiting[:size]
    if waiting or is_first:
        yield bytes(waiting)
