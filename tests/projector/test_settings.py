"""Settings: read from the environment, refused in one line that repeats no value."""

import pytest

from flightlog_projector.settings import BadSettings, Settings, load, projections

SECRET = "do-not-print-me"


def test_projections_are_imported_by_module_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "FLIGHTLOG_PROJECTIONS", "flightlog.snapshot:SESSION, flightlog.snapshot:SESSION"
    )
    assert [found.name for found in projections(load())] == ["session", "session"]


@pytest.mark.parametrize(
    "name", ["nowhere:X", "flightlog.snapshot:X", "flightlog", ":", "json:loads"]
)
def test_a_projection_that_is_none_is_named(name: str) -> None:
    with pytest.raises(BadSettings, match="FLIGHTLOG_PROJECTIONS"):
        projections(Settings(projections=(name,)))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HTTP_PORT", SECRET), ("HTTP_PORT", "70000"), ("FOLDS", "0"), ("LOG_LEVEL", SECRET)],
)
def test_bad_settings_name_the_variable_and_not_the_value(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"FLIGHTLOG_{variable}", value)
    with pytest.raises(BadSettings, match=f"FLIGHTLOG_{variable}: ") as caught:
        load()
    assert value not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_urls_do_not_show_in_the_settings_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTLOG_NATS_URL", f"nats://{SECRET}@h:1")
    monkeypatch.setenv("FLIGHTLOG_REDIS_URL", f"redis://:{SECRET}@h:1")
    assert SECRET not in repr(load())
