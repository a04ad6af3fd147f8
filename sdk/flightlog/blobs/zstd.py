"""zstd: the one place where bytes are compressed, and taken apart within a bound."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd as library
else:
    from backports import zstd as library

__all__ = ["compress", "decompress", "library"]

_LEVEL = 3  # zstd's own default: 0.5 ms for 55 KB of talk, which become 17 KB
_WINDOW_LOG = 20  # a frame's window, 1 MiB: what a reader must hold, twice what a chunk needs
_WRITING: dict[int, int] = {
    library.CompressionParameter.compression_level: _LEVEL,
    library.CompressionParameter.window_log: _WINDOW_LOG,
}
_READING: dict[int, int] = {library.DecompressionParameter.window_log_max: _WINDOW_LOG}


def compress(raw: bytes | memoryview) -> bytes:
    """One frame that holds these bytes and declares their number."""
    return library.compress(raw, options=_WRITING)


def decompress(frame: bytes, *, most: int) -> bytes:
    """What a frame holds. Raises `ValueError`, saying why, for one that is damaged or too large.

    No more than `most` bytes are ever made of it, whatever it declares.
    """
    try:
        declared = library.get_frame_info(frame).decompressed_size or 0  # None: it does not say
        if declared > most:
            raise ValueError(f"its frame declares more than {most} bytes")
        taken = library.ZstdDecompressor(options=_READING)
        raw = taken.decompress(frame, max_length=most + 1)
    except library.ZstdError as exc:
        raise ValueError("it is no zstd frame that can be read") from exc
    if len(raw) > most:
        raise ValueError(f"its frame holds more than {most} bytes")
    if not taken.eof or taken.unused_data:
        raise ValueError("it is not one whole zstd frame")
    return raw
