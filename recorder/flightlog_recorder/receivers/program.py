"""A program that is run once for each delivery, with the event on its standard input."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from flightlog import Delivery


class Program:
    """Exit code 0 means that the event was handled; anything else that it is to come again."""

    def __init__(self, command: Sequence[str], *, timeout: float) -> None:
        """`timeout`: seconds after which the program, and all that it started, is killed."""
        self._command, self._timeout = command, timeout

    async def take(self, delivery: Delivery) -> None:
        """Run it on a delivery, and settle that."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                env=os.environ | variables(delivery),
                start_new_session=True,  # a Ctrl-C is ours: what runs may end
            )
        except OSError as exc:
            await delivery.fail(f"it could not be started: {exc.strerror}")
            return
        try:
            async with asyncio.timeout(self._timeout):
                await process.communicate(delivery.event.body)
        except TimeoutError:
            await delivery.fail(f"it ran for more than {self._timeout:g} s")
        else:
            await _settle(delivery, process.returncode or 0)
        finally:
            await _killed(process)


def variables(delivery: Delivery) -> dict[str, str]:
    """What a program learns of a delivery from its environment."""
    event = delivery.event
    return {
        "FLIGHTLOG_DELIVERY_ID": delivery.id,
        "FLIGHTLOG_ATTEMPT": str(delivery.attempt),
        "FLIGHTLOG_SESSION": event.session_id,
        "FLIGHTLOG_SEQ": str(event.seq),
        "FLIGHTLOG_TYPE": event.type,
    }


async def _settle(delivery: Delivery, code: int) -> None:
    if code == 0:
        await delivery.ack()
    elif code < 0:
        await delivery.fail(f"it was killed by signal {-code}")
    else:
        await delivery.fail(f"exit code {code}")


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
