"""The environment that each part reads, from its own settings."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from flightlog_projector.settings import Settings as ProjectorSettings
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
        return _named_in_sources() | {f"{PREFIX}{name}_FILE" for name in ("NATS_URL", "REDIS_URL")}
    fields = SERVICES[part].model_fields
    plain = {f"{PREFIX}{name.upper()}" for name in fields}
    secret = {name for name, field in fields.items() if SecretStr.__name__ in str(field.annotation)}
    return plain | {f"{PREFIX}{name.upper()}_FILE" for name in secret}


def _named_in_sources() -> set[str]:
    folders = ("sdk/flightlog", "recorder/flightlog_recorder/cli")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {found for path in files for found in re.findall(r"FLIGHTLOG_[A-Z_]+", path.read_text())}


def default(part: str, field: str) -> Any:
    """A setting's default."""
    return SERVICES[part].model_fields[field].default


def environment(container: Mapping[str, Any]) -> dict[str, Any]:
    """A container's variables: their values, or where they come from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
