"""The recorder's settings, from the environment (`FLIGHTLOG_*`)."""

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from flightlog.bus import access
from flightlog.bus.access import NatsAccess


class BadSettings(Exception):
    """Settings that cannot be used; says which and why, never their values."""


class Settings(BaseSettings):
    """What the recorder needs to know. Durations are seconds.

    `duty` is the share of its time that it works: reading every log again and again must not starve
    those who write them. `stalled_after` is how long a running session may be silent;
    `stall_timeout` is the recorder's own: after it without progress `/livez` asks for a restart.
    """

    model_config = SettingsConfigDict(env_prefix="FLIGHTLOG_", env_ignore_empty=True)

    nats_url: SecretStr | None = None
    redis_url: SecretStr | None = None
    subject_prefix: str = "flightlog.v1"
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=8081, ge=0, le=65_535)
    duty: float = Field(default=0.2, gt=0, le=1)
    round_pause: float = Field(default=10.0, ge=0)
    base_age: float = Field(default=86_400.0, ge=0)
    stalled_after: float = Field(default=600.0, gt=0)
    stall_timeout: float = Field(default=600.0, gt=0)
    log_level: str = "INFO"

    def nats(self) -> NatsAccess:
        """Which servers, and what proves who we are; raises `CredentialsUnusable`."""
        return access.resolve(self.nats_url.get_secret_value() if self.nats_url else None)

    def redis(self) -> str | None:
        """The URL of Redis, or None; raises `CredentialsUnusable`."""
        given = self.redis_url.get_secret_value() if self.redis_url else None
        return access.redis_url(given)

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
