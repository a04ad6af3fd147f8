"""The projector's settings, from the environment (`FLIGHTLOG_*`)."""

import importlib
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from flightlog.bus import access
from flightlog.bus.access import NatsAccess
from flightlog.snapshot import Projection

DEFAULT_REDIS = "redis://127.0.0.1:6379/0"


class BadSettings(Exception):
    """Settings that cannot be used; says which and why, never their values."""


class Settings(BaseSettings):
    """What the projector needs to know. Durations are seconds, sizes bytes."""

    model_config = SettingsConfigDict(env_prefix="FLIGHTLOG_", env_ignore_empty=True)

    nats_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    subject_prefix: str = "flightlog.v1"
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8080, ge=0, le=65_535)
    projections: Annotated[tuple[str, ...], NoDecode] = ()
    folds: int = Field(default=8, ge=1, le=256)
    rebuild_rate: float = Field(default=500.0, gt=0)
    stall_timeout: float = Field(default=60.0, gt=0)
    drain_timeout: float = Field(default=10.0, gt=0)
    log_level: str = "INFO"

    def nats(self) -> NatsAccess:
        """Which servers, and what proves who we are; raises `CredentialsUnusable`."""
        return access.resolve(self.nats_url.get_secret_value() if self.nats_url else None)

    def redis(self) -> str:
        """The URL of Redis; raises `CredentialsUnusable`."""
        given = self.redis_url.get_secret_value() if self.redis_url else None
        return access.redis_url(given) or DEFAULT_REDIS

    @field_validator("projections", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`module:attr,module:attr` as one variable."""
        return (
            tuple(filter(None, value.replace(" ", "").split(",")))
            if isinstance(value, str)
            else value
        )

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError("it is none of DEBUG, INFO, WARNING, ERROR")
        return value.upper()


def load() -> Settings:
    """Read the settings; raises `BadSettings` in one line."""
    try:
        return Settings()
    except ValidationError as exc:
        rows = [
            f"FLIGHTLOG_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in exc.errors()
        ]
        raise BadSettings("; ".join(rows)) from None


def projections(settings: Settings) -> list[Projection[Any]]:
    """Import the users' projections; raises `BadSettings` for what is none."""
    return [_import(name) for name in settings.projections]


def _import(name: str) -> Projection[Any]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise BadSettings(
            f"FLIGHTLOG_PROJECTIONS: {name} cannot be imported as module:attr"
        ) from exc
    found = found() if isinstance(found, type) else found
    missing = [
        part
        for part in ("name", "version", "initial", "apply", "encode", "decode")
        if not hasattr(found, part)
    ]
    if missing:
        raise BadSettings(f"FLIGHTLOG_PROJECTIONS: {name} has no {', '.join(missing)}")
    return found  # type: ignore[no-any-return]
