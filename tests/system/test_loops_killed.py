"""Every kind of loop, killed at many points and resumed, ends as one that nobody disturbed."""

from pathlib import Path

import pytest

from flightlog_recorder.embedded import Servers
from tests.system.loops import Loop

# Each place costs two processes of about a second on a machine that is shared.
pytestmark = pytest.mark.timeout(150)


async def test_cancelled_and_timed_out_calls_are_closed_wherever_the_process_dies(
    servers: Servers, tmp_path: Path
) -> None:
    loop = Loop("timeouts", servers, tmp_path)
    await loop.same_wherever_it_dies(["3", "6", "call_0", "11", "call_1", "call_2"])


async def test_a_streaming_loop_asks_again_for_what_it_had_only_shown(
    servers: Servers, tmp_path: Path
) -> None:
    loop = Loop("streaming", servers, tmp_path)
    places = ["two of turn 0", "4", "5", "call_1", "three of turn 3", "15"]
    await loop.same_wherever_it_dies(places)


async def test_a_loop_of_threads_resumes_its_parallel_calls(
    servers: Servers, tmp_path: Path
) -> None:
    loop = Loop("threads", servers, tmp_path, parallel=True)
    await loop.same_wherever_it_dies(["4", "6", "10", "19", "28"])


@pytest.mark.soak
@pytest.mark.timeout(900)  # up to eighty processes
@pytest.mark.parametrize(("script", "acks"), [("timeouts", 21), ("streaming", 18), ("threads", 29)])
async def test_a_loop_resumes_whatever_ack_was_the_last(
    servers: Servers, tmp_path: Path, script: str, acks: int
) -> None:
    loop = Loop(script, servers, tmp_path, parallel=script == "threads")
    await loop.same_wherever_it_dies(str(n) for n in range(1, acks))
