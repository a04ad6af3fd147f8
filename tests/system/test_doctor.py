"""`flightlog doctor` on servers that `flightlog provision --output` set up: all is well."""

from pathlib import Path

import pytest

from flightlog.bus import access
from flightlog_recorder.doctor import doctor
from flightlog_recorder.doctor.gather import Place
from tests import handed
from tests.projector.conftest import spawn
from tests.recorder.command import Command
from tests.scripted import until

pytestmark = pytest.mark.timeout(120)  # servers, a projector and commands are processes

USERS = ["harness", "projector", "recorder", "operator", "admin", "subscriber-mailer"]


@pytest.mark.parametrize("proof", ["password", "nkey"])
async def test_what_was_provisioned_is_found_right(tmp_path: Path, proof: str) -> None:
    options = ("--tenant", "acme", "--subscriber", "mailer", "--proof", proof)
    with handed.running(tmp_path, options) as made:
        assert (await made.command("acme-operator")("provision")).code == 0
        for user in USERS:
            environ = made.environ(f"acme-{user}")
            place = Place(made.access(f"acme-{user}"), redis=access.redis_url(environ=environ))
            for each in await doctor.examine(place):
                assert each.grade != "wrong" or each.check.startswith("projector"), each
                assert each.grade == "ok" or "permissions" not in each.check or not place.redis
        projector = await spawn(made.program("acme-projector"))
        command = Command(made.environ("acme-operator") | _of_system(made.environ("doctor")))
        try:

            async def is_well() -> bool:
                ran = await command("doctor", "--strict")
                print(ran.out, ran.err)
                return ran.code == 0

            await until(is_well, timeout=60)
        finally:
            projector.process.kill()
            await projector.process.wait()


def _of_system(environ: dict[str, str]) -> dict[str, str]:
    return {
        name.replace("FLIGHTLOG_NATS", "FLIGHTLOG_SYSTEM_NATS"): value
        for name, value in environ.items()
        if name.startswith("FLIGHTLOG_NATS")
    }
