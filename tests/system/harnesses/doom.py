"""Where a harness dies: `FLIGHTLOG_DIE=7` after its 7th ack, `FLIGHTLOG_DIE=write` in that place.

And the file in which the side effects of its tools are counted, whatever process they happened in.
"""

import itertools
import os
import signal
from pathlib import Path
from typing import Any

DIE = "FLIGHTLOG_DIE"
EFFECTS = "effects"
_acks = itertools.count(1)


def acked(_: Any) -> None:
    """Die if this was the last ack that the process should live to see; given as `on_event`."""
    reached(str(next(_acks)))


def reached(place: str) -> None:
    """Die here, by SIGKILL, if it is the place."""
    if os.environ.get(DIE) == place:
        os.kill(os.getpid(), signal.SIGKILL)


def effect(folder: Path, what: str) -> None:
    """One line by one write: it is there whole, whatever happens next."""
    with (folder / EFFECTS).open("ab", buffering=0) as file:
        file.write(f"{what}\n".encode())
    reached(what)


def effects(folder: Path) -> list[str]:
    """All side effects so far."""
    file = folder / EFFECTS
    return file.read_text().splitlines() if file.exists() else []
