"""The last lines of what a program writes, in bounded memory."""

from collections import deque

LINE_BYTES = 500  # kept of each line


class Tail:
    """Takes bytes as they come, and keeps the last `lines` lines of them."""

    def __init__(self, lines: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines)
        self._open = b""

    def take(self, data: bytes) -> None:
        """Add what was written next."""
        *whole, rest = (self._open + data).split(b"\n")
        self._lines.extend(line[:LINE_BYTES] for line in whole)
        self._open = rest[:LINE_BYTES]

    def lines(self) -> list[str]:
        """The last lines as text, the unfinished one included."""
        kept = [*self._lines, self._open] if self._open else [*self._lines]
        last = kept[-self._lines.maxlen :] if self._lines.maxlen else []
        return [line.decode(errors="replace").rstrip("\r") for line in last]
