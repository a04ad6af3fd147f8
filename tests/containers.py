"""The servers of a test in containers: same settings, same verbs as the embedded ones.

Each container listens on the port that its endpoint names, so it comes back there after a kill.
"""

import contextlib
import functools
import gc
import os
import time
import warnings
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer

from flightlog_recorder.embedded import Nats, Server, ServerFailed, Valkey
from flightlog_recorder.embedded.endpoint import fresh

IN_CONTAINERS = os.environ.get("FLIGHTLOG_TEST_CONTAINERS") == "1"
NATS_IMAGE = "nats:2.15"
REDIS_IMAGES = {"redis": "redis:7.4", "valkey": "valkey/valkey:9.0"}
START_DEADLINE = 60.0  # seconds; the image may have to be pulled first
STOP_DEADLINE = 10  # seconds until docker kills
EVERYWHERE = "0.0.0.0"  # noqa: S104  inside the container; outside, a token guards the port
CONFIG = "/etc/flightlog.conf"


class ContainerServer(Server):
    """A server in a container; its data lives as long as the container, through any kill."""

    def __init__(self, kind: Nats | Valkey, home: Path, *, image: str) -> None:
        super().__init__(kind, home)
        self._settings = kind.settings
        self._store = "/store" if isinstance(kind, Nats) else "/data"
        self._where = fresh(kind.name)
        self._image = image
        self._container: DockerContainer | None = None

    @property
    def url(self) -> str:
        return self._kind.url(self._where)

    @property
    def port(self) -> int:
        return self._where.port

    @property
    def pid(self) -> int:
        pytest.skip("CONTAINERS=1: a container's process has no id of ours")

    @property
    def running(self) -> bool:
        if self._container is None:
            return False
        self._container.reload()
        return self._container.status in {"running", "paused"}

    def start(self) -> None:
        if self._container is None:
            self._container = self._prepared().start()
        elif not self.running:
            self._container.get_wrapped_container().start()
        self._wait_until_it_answers()

    def stop(self) -> None:
        if self._container and self.running:
            self._container.get_wrapped_container().stop(timeout=STOP_DEADLINE)

    def kill(self) -> None:
        if self._container and self.running:
            self._container.get_wrapped_container().kill()

    def pause(self) -> None:
        if self._container:
            self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        if self._container:
            self._container.get_wrapped_container().unpause()

    def remove(self) -> None:
        """Take the container and its data away."""
        if self._container:
            self._container.stop()

    def _prepared(self) -> DockerContainer:
        settings = self._settings(Path(self._store), self._where, host=EVERYWHERE)
        return (
            DockerContainer(self._image)
            .with_copy_into_container(settings.encode(), CONFIG)
            .with_bind_ports(self.port, self.port)
            .with_command(_command(self._image))
        )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_DEADLINE
        while not self._kind.answers(self._where):
            if time.monotonic() > deadline or not self.running:
                raise ServerFailed(self._image, self.log, "no answer from the container")
            time.sleep(0.05)


def in_container(kind: Nats | Valkey, home: Path, *, image: str) -> ContainerServer:
    """A server of this kind, not yet started; skips the test when docker cannot be reached."""
    if not docker_answers():
        pytest.skip("CONTAINERS=1, but docker cannot be reached")
    return ContainerServer(kind, home, image=REDIS_IMAGES.get(image, NATS_IMAGE))


@functools.cache
def docker_answers() -> bool:
    """Whether a docker daemon can be reached from here."""
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        try:
            with contextlib.closing(docker.from_env()) as client:
                return bool(client.ping())
        except DockerException:
            return False
        finally:
            gc.collect()  # a client that failed leaves its socket open, and warnings are errors


def _command(image: str) -> list[str]:
    if image == NATS_IMAGE:
        return ["-c", CONFIG]
    return [f"{image.partition(':')[0].rpartition('/')[2]}-server", CONFIG]
