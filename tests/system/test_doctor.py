"""`flightlog doctor` on servers that `flightlog provision --output` set up: all is well."""

from pathlib import Path

import pytest

from tests import handed
from tests.projector.conftest import spawn
from tests.recorder.command import Command
from tests.scripted import until

pytestmark = pytest.mark.timeout(120)  # servers, a projector and commands are processes


async def test_what_was_provisioned_is_found_right_by_the_operator_and_the_doctor(
    tmp_path: Path,
) -> None:
    with handed.running(tmp_path, ("--tenant", "acme")) as made:
        assert (await made.command("acme-operator")("provision")).code == 0
        projector = await spawn(made.program("acme-projector"))
        operator, doctor = made.environ("acme-operator"), made.environ("doctor")
        system = {
            name.replace("FLIGHTLOG_NATS", "FLIGHTLOG_SYSTEM_NATS"): value
            for name, value in doctor.items()
            if name.startswith("FLIGHTLOG_NATS")
        }
        command = Command(operator | system)
        try:

            async def is_well() -> bool:
                ran = await command("doctor", "--strict")
                print(ran.out, ran.err)
                return ran.code == 0

            await until(is_well, timeout=60)
        finally:
            projector.process.kill()
            await projector.process.wait()
