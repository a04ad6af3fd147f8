"""The Dockerfile, as far as that goes without a Docker daemon."""

import re
import tomllib
from fnmatch import fnmatch

import pytest

from tests.deploy import settings_of
from tests.deploy.rendered import DEPLOY, PARTS, ROOT

TEXT = (DEPLOY / "Dockerfile").read_text()
EVERY_PART = (*PARTS, "agent")


def copied() -> list[str]:
    """What is copied from the build's context."""
    rows = re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
    return [source for row in rows for source in row.split()[:-1]]


def test_every_file_that_is_copied_is_there_and_is_let_into_the_context() -> None:
    let_in = [
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert copied()
    for source in copied():
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in let_in), source
    assert sorted(let_in) == sorted(copied())


def test_the_package_can_be_built_from_what_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {package.partition("/")[0] for package in packages}
    needed |= {"pyproject.toml", *project["project"]["license-files"]}
    assert needed <= set(copied())


@pytest.mark.parametrize("part", EVERY_PART)
def test_each_part_is_a_stage_and_installs_an_extra_that_is_there(part: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert f"FROM runtime AS {part}\n" in TEXT
    [stage] = re.findall(rf"FROM source AS {part}-built\nRUN (.+)", TEXT)
    [extra] = re.findall(r"\.\[(\w+)\]", stage)
    assert extra in extras
    assert "dev" not in extra


def test_it_runs_as_a_numbered_user_that_is_not_root() -> None:
    [user] = re.findall(r"^USER (\d+):(\d+)$", TEXT, re.MULTILINE)
    assert all(int(number) > 0 for number in user)
    assert TEXT.index("USER") < TEXT.index("FROM runtime AS projector")


@pytest.mark.parametrize("part", PARTS)
def test_a_service_listens_where_its_image_says(part: str) -> None:
    stage = TEXT.partition(f"FROM runtime AS {part}\n")[2].partition("FROM ")[0]
    [port] = re.findall(r"EXPOSE (\d+)", stage)
    assert int(port) == settings_of.default(part, "http_port")
    [variable] = re.findall(r"ENV (\w+)=0\.0\.0\.0", stage)
    assert variable in settings_of.readable(part, command=False)
