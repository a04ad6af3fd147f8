"""What the environment says of this process' session: how `flightlog run` tells its program."""

import os
from collections.abc import Mapping
from urllib.parse import quote, unquote

from flightlog import clock
from flightlog.errors import InvalidValue

SESSION_KEY = "FLIGHTLOG_SESSION_KEY"
LABELS = "FLIGHTLOG_LABELS"
RUN = "FLIGHTLOG_RUN"  # 16 hex digits that begin the writer ids of all processes of one run

_RUN_BITS = 64
_SAFE = " !$&'()*+/:;@?"  # beside letters, digits and _.-~ these stand for themselves in a label


def session_key() -> str | None:
    """The key of the session that this process is to open, if it is told."""
    return os.environ.get(SESSION_KEY) or None


def labels() -> dict[str, str]:
    """The labels that every session of this process gets. Raises `InvalidValue`."""
    return read_labels(os.environ.get(LABELS, ""))


def read_labels(text: str) -> dict[str, str]:
    """Labels from `name=value,name=value`; other characters than usual ones are percent-encoded."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(name.strip() and equals for name, equals, _ in pairs):
        raise InvalidValue(LABELS, "it must be name=value pairs with commas between them")
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def write_labels(labels: Mapping[str, str]) -> str:
    """Labels as `read_labels` reads them."""
    return ",".join(f"{quote(name, _SAFE)}={quote(value, _SAFE)}" for name, value in labels.items())


def mint_run() -> str:
    """A new value for `FLIGHTLOG_RUN`."""
    return f"{clock.bits(_RUN_BITS):016x}"


def writer_id() -> str:
    """A new writer's id: 128 random bits, half of them shared by the processes of one run."""
    run, digits = os.environ.get(RUN, ""), f"{clock.bits(128):032x}"
    return run + digits[len(run) :] if len(run) == _RUN_BITS // 4 else digits
