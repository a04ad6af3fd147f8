"""The environment that each part reads, from its own settings."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings
from starlette.routing import Route

from flightlog.bus import access
from flightlog_projector import web as projector_web
from flightlog_projector.metrics import Metrics as ProjectorMetrics
from flightlog_projector.settings import Settings as ProjectorSettings
from flightlog_recorder.service import web as recorder_web
from flightlog_recorder.service.metrics import Metrics as RecorderMetrics
from flightlog_recorder.service.settings import Settings as RecorderSettings
from tests.deploy.rendered import ROOT

PREFIX = "FLIGHTLOG_"
SERVICES: dict[str, type[BaseSettings]] = {
    "projector": ProjectorSettings,
    "recorder": RecorderSettings,
}


def readable(part: str, *, command: bool) -> set[str]:
    """The variables that a part reads; a command, so an agent too, the SDK's and CLI's."""
    if command or part not in SERVICES:
        return _named_in_sources() | access.VARIABLES
    return {f"{PREFIX}{name.upper()}" for name in SERVICES[part].model_fields} | access.VARIABLES


def _named_in_sources() -> set[str]:
    folders = ("sdk/flightlog", "recorder/flightlog_recorder/cli")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {found for path in files for found in re.findall(r"FLIGHTLOG_[A-Z_]+", path.read_text())}


def pages(part: str) -> set[str]:
    """The pages that a service has."""

    async def unready() -> str | None:
        return None

    if part == "projector":
        app = projector_web.application([], ProjectorMetrics(), unready)
    else:
        nothing = {"why_dead": lambda: None, "why_unready": lambda: None}
        app = recorder_web.application(RecorderMetrics(), **nothing)
    return {route.path for route in app.routes if isinstance(route, Route)}


def default(part: str, field: str) -> Any:
    """A setting's default."""
    return SERVICES[part].model_fields[field].default


def environment(container: Mapping[str, Any]) -> dict[str, Any]:
    """A container's variables: their values, or where they come from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
