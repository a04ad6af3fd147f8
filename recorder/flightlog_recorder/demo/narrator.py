"""How the demo is told: calm lines on a terminal, plain ones in a pipe, none for machines."""

import sys
import time
from typing import Protocol, Self

from rich.console import Console
from rich.text import Text

_LABEL = 11  # columns
_BAD_NEWS = ("killed", "emptied")


class Narrator(Protocol):
    """Tells what happens, one line each, with the seconds since the beginning."""

    def chapter(self, text: str) -> None:
        """Begin a new part of the story."""
        ...

    def line(self, label: str, text: str) -> None:
        """Tell one thing."""
        ...

    def verdict(self, good: bool, label: str, text: str) -> None:
        """Tell one thing that was checked."""
        ...

    def progress(self, text: str) -> None:
        """Show what goes on, until the next line; nothing in a pipe."""
        ...


class Silent:
    """Says nothing: the JSON at the end is all that is wanted."""

    def chapter(self, text: str) -> None: ...

    def line(self, label: str, text: str) -> None: ...

    def verdict(self, good: bool, label: str, text: str) -> None: ...

    def progress(self, text: str) -> None: ...


class Told:
    """Tells it to people; rich finds out by itself whether they sit at a terminal."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self._status = self._console.status("starting", spinner="dots", spinner_style="dim")
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def chapter(self, text: str) -> None:
        self._console.print()
        self._console.print(Text(text, style="bold"))

    def line(self, label: str, text: str) -> None:
        style = "bold red" if label in _BAD_NEWS else "cyan"
        self._say(Text(f"{label:<{_LABEL}}", style=style), Text(text))

    def verdict(self, good: bool, label: str, text: str) -> None:
        style = "green" if good else "bold red"
        mark = Text("✓ " if good else "✗ ", style=style)
        self._say(Text(f"{label:<{_LABEL}}", style=style), mark + Text(text))

    def progress(self, text: str) -> None:
        self._status.update(Text(text, style="dim"))

    def _say(self, label: Text, text: Text) -> None:
        stamp = Text(f"{time.monotonic() - self._began:5.1f}s  ", style="dim")
        self._console.print(stamp + label + text)
