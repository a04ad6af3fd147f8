"""Something of a harness that the command line names as MODULE:NAME."""

import importlib
import sys
from pathlib import Path
from typing import Any

from flightlog import FlightlogError, InvalidValue


class BadName(FlightlogError):
    """What was named cannot be loaded."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"{name} cannot be loaded ({why})")


def load(name: str, *, what: str) -> Any:
    """What `MODULE:NAME` names; the module is imported, from the working directory too.

    Raises `InvalidValue` and `BadName`.
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise InvalidValue(what, "name it as MODULE:NAME")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as exc:  # whatever a harness' module raises when it is imported
        raise BadName(name, type(exc).__name__) from exc
