"""The terminal while somebody walks: raw keys, a screen of its own, all given back at the end."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from signal import Signals

from rich.console import Console
from rich.text import Text

from flightlog_recorder.replay.keys import Keys
from flightlog_recorder.replay.screen import Line

ESCAPE_SECONDS = 0.05  # until an escape with nothing behind it is taken for the key
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # another screen, no cursor, no wrapping
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOLD, SHOW = "\x1b[?2026h", "\x1b[?2026l"  # between them nothing is shown, where it is known
CLEAR = "\x1b[K"  # from the cursor to the end of the line
RESIZED = "resized"
ENDINGS = (Signals.SIGINT, Signals.SIGTERM, Signals.SIGHUP)


class Terminal:
    """Where keys come from and lines go to. Made by `entered`."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._keys = Keys()
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._flush: asyncio.TimerHandle | None = None
        self.told: Signals | None = None
        self._console = Console(file=StringIO(), force_terminal=True, highlight=False)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        found = os.get_terminal_size(self._target)
        return max(20, found.columns), max(6, found.lines)

    @property
    def has_keys(self) -> bool:
        """Whether keys wait to be taken."""
        return not self._heard.empty()

    async def key(self) -> str:
        """The next key, `resized`, or `ctrl-c` where the process is told to end."""
        return await self._heard.get()

    def put_back(self, keys: Sequence[str]) -> None:
        """Take these keys next: they came while something else was waited for."""
        later = [self._heard.get_nowait() for _ in range(self._heard.qsize())]
        for key in (*keys, *later):
            self._heard.put_nowait(key)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines from the top, each cut to the width, all at once."""
        columns, rows = self.size
        self._console.width = columns + 1
        shown = [self._whole(line, columns) for line in lines[: rows - 1]]
        last = [self._ansi(line.left, columns - 1) for line in lines[rows - 1 : rows]]
        self.write(f"{HOLD}\x1b[H" + "\r\n".join([*shown, *last]) + f"\x1b[J{SHOW}")

    def _whole(self, line: Line, columns: int) -> str:
        """The line; the cell that the cursor rests on behind a full one must not be cleared."""
        if line.right is None:
            full = line.left.cell_len >= columns
            return self._ansi(line.left, columns) + ("" if full else CLEAR)
        left = self._ansi(line.left, line.at) + CLEAR
        full = line.at + line.right.cell_len >= columns
        right = self._ansi(line.right, columns - line.at) + ("" if full else CLEAR)
        return f"{left}\x1b[{line.at + 1}G{right}"

    def _ansi(self, line: Text, columns: int) -> str:
        """The line with its styles as escape sequences, in the colours that the terminal has."""
        shown = line.copy()
        shown.truncate(columns, overflow="ellipsis")
        with self._console.capture() as captured:
            self._console.print(shown, end="", no_wrap=True, overflow="crop", crop=False)
        return captured.get()

    def write(self, text: str) -> None:
        """Write to the terminal, all of it."""
        data = text.encode("utf-8", "replace")
        while data:
            data = data[os.write(self._target, data) :]

    def heard(self) -> None:
        """Take what the terminal has sent."""
        try:
            data = os.read(self._source, 1024)
        except OSError:  # what the terminal's end looks like to a process that it does not signal
            data = b""
        if not data:
            self.end(Signals.SIGHUP)
            return
        if self._flush is not None:
            self._flush.cancel()
        for key in self._keys.feed(data):
            self._heard.put_nowait(key)
        if self._keys.is_waiting:
            loop = asyncio.get_running_loop()
            self._flush = loop.call_later(ESCAPE_SECONDS, self._flushed)

    def _flushed(self) -> None:
        for key in self._keys.flush():
            self._heard.put_nowait(key)

    def resized(self) -> None:
        """Let the next key be that the size is another one."""
        self._heard.put_nowait(RESIZED)

    def end(self, told: Signals) -> None:
        """Let whoever waits for a key leave, before anything that was typed."""
        self.told = told
        asyncio.get_running_loop().remove_reader(self._source)
        self.put_back(["ctrl-c"])


@contextmanager
def entered() -> Generator[Terminal]:
    """The terminal as ours, inside a running loop; given back as it was, whatever happens."""
    source, target = sys.stdin.fileno(), sys.stdout.fileno()
    sys.stdout.flush()
    terminal = Terminal(source, target)
    saved = termios.tcgetattr(source)
    try:
        tty.setraw(source)
        terminal.write(ENTER)
        with _listening(terminal, source):
            yield terminal
    finally:
        with suppress(OSError, termios.error):  # the terminal itself may be gone
            terminal.write(LEAVE)
            termios.tcsetattr(source, termios.TCSADRAIN, saved)


@contextmanager
def _listening(terminal: Terminal, source: int) -> Generator[None]:
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (*ENDINGS, Signals.SIGWINCH)}
    loop.add_reader(source, terminal.heard)
    loop.add_signal_handler(Signals.SIGWINCH, terminal.resized)
    for number in ENDINGS:
        loop.add_signal_handler(number, terminal.end, number)
    try:
        yield
    finally:
        loop.remove_reader(source)
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
