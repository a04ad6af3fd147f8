"""A chunk as it is stored: one zstd frame, read within bounds."""

import sys

from flightlog.wire import chunk

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_WINDOW_LOG = 20  # what a reader lets a frame have as its window: 1 MiB, twice a chunk
_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}


def pack(content: bytes | memoryview) -> bytes:
    """The content of a chunk as a frame that declares its size."""
    return zstd.compress(content)


def unpack(frame: bytes) -> bytes:
    """The content in a frame; `ValueError` says why there is none, never holding more than one."""
    try:
        declared = zstd.get_frame_info(frame).decompressed_size or 0  # None: it does not say
        if declared > chunk.SIZE:
            raise ValueError(f"its frame declares more than {chunk.SIZE} bytes")
        decompressor = zstd.ZstdDecompressor(options=_OPTIONS)
        content = decompressor.decompress(frame, max_length=chunk.SIZE + 1)
    except zstd.ZstdError as exc:
        raise ValueError("it is no zstd frame that can be read") from exc
    if len(content) > chunk.SIZE:
        raise ValueError(f"its frame holds more than {chunk.SIZE} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it is not one whole zstd frame")
    return content
