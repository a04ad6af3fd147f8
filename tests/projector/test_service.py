"""The projector as a process: its pages, its stop, and what it says when it cannot start."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from flightlog.cache.shelf import Shelf
from flightlog_projector.projector import Projector
from tests.projector.conftest import (
    Child,
    StartReplica,
    World,
    environment,
    page,
    spawn,
    until,
)
from tests.projector.test_follower import all_quiet, log, session

pytestmark = pytest.mark.timeout(60)  # processes of their own take seconds to start
SECRET = "do-not-print-me"


@pytest.fixture
async def child(world: World) -> Child:
    return await spawn(environment(world.nats, world.redis))


async def ended(child: Child) -> str:
    assert child.process.stderr is not None
    rest = await child.process.stderr.read()
    await child.process.wait()
    return "".join(child.said) + rest.decode()


async def is_ready(child: Child) -> bool:
    return (await child.page("/readyz"))[0] == 200


async def test_it_serves_its_pages_and_stops_in_order(world: World, child: Child) -> None:
    await until(lambda: is_ready(child))
    await world.put(session(1), *log(1))
    await world.reaches(session(1), 3)
    assert await child.page("/startupz") == (200, "ok")
    assert await child.page("/livez") == (200, "ok")
    status, text = await child.page("/metrics")
    assert status == 200
    for name in ("lag", "events_total", "rows_total", "set_aside_sessions", "rebuilding"):
        assert f"flightlog_projector_{name}" in text
    for name in ("snapshots", "conflicts", "fold_seconds"):
        assert f"TYPE flightlog_projector_{name}" in text
    child.process.send_signal(signal.SIGTERM)
    said = await ended(child)
    assert child.process.returncode == 0
    assert "stopped; 0 notices are left" in said
    assert "Traceback" not in said


async def test_it_lives_on_while_redis_or_nats_are_away_and_says_that_it_is_not_ready(
    world: World, child: Child
) -> None:
    await until(lambda: is_ready(child))
    world.redis.kill()
    assert await child.page("/readyz") == (503, "Redis does not answer")
    assert await child.page("/livez") == (200, "ok")
    world.redis.start()
    await until(lambda: is_ready(child))
    world.nats.kill()

    async def is_unready() -> bool:
        return await child.page("/readyz") == (503, "no connection to NATS")

    await until(is_unready)
    assert await child.page("/livez") == (200, "ok")
    world.nats.start()
    await until(lambda: is_ready(child))
    child.process.send_signal(signal.SIGTERM)
    assert "Traceback" not in await ended(child)


async def test_replicas_that_are_killed_again_and_again_lose_nothing(world: World) -> None:
    env = environment(world.nats, world.redis)
    for n in range(4):
        child = await spawn(env)
        for m in range(10):
            await world.put(session(n * 10 + m), *log(n * 10 + m))
        await world.reaches(session(n * 10), 3)
        child.process.kill()
        await child.process.wait()
    last = await spawn(env)
    await until(lambda: is_ready(last), timeout=30)
    for n in range(40):
        await world.reaches(session(n), 3, timeout=30)
    last.process.send_signal(signal.SIGTERM)
    await ended(last)


async def test_work_that_does_not_move_fails_the_liveness_page(
    world: World, start_replica: StartReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    replica = await start_replica(stall_timeout=1)
    await replica.ready()
    port = replica.service.port
    assert await page(port, "/livez") == (200, "ok")
    monkeypatch.setattr(Projector, "project", hang)
    await world.put(session(1), *log(1))

    async def is_dead() -> bool:
        status, text = await page(port, "/livez")
        return status == 503 and "3 messages wait" in text

    await until(is_dead)


async def run(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "flightlog_projector", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_bad_settings_end_it_with_exit_code_3_and_one_line(world: World) -> None:
    env = environment(world.nats, world.redis)
    for variable, value in [
        ("FLIGHTLOG_HTTP_PORT", SECRET),
        ("FLIGHTLOG_REDIS_URL", f"http://{SECRET}"),
        ("FLIGHTLOG_REDIS_URL", f"redis://:{SECRET}@127.0.0.1:{world.redis.port}/0"),
        ("FLIGHTLOG_PROJECTIONS", "nowhere:X"),
        ("FLIGHTLOG_NATS_URL", "nats://wrong@127.0.0.1:" + str(world.nats.port)),
    ]:
        code, said = await run(env | {variable: value})
        assert code == 3, variable
        assert said.count("\n") == 1, said
        assert SECRET not in said


async def test_an_argument_is_refused_as_all_settings_are_in_the_environment(world: World) -> None:
    code, said = await run(environment(world.nats, world.redis), "--help")
    assert (code, said.count("\n"), "FLIGHTLOG_" in said) == (2, 1, True)


async def test_no_bus_ends_it_with_exit_code_3_and_one_line(world: World) -> None:
    code, said = await run(environment("nats://127.0.0.1:9", world.redis))
    assert code == 3
    assert said.count("\n") == 1
    assert "127.0.0.1:9" in said


async def test_a_port_that_is_taken_ends_it_with_exit_code_3(world: World, child: Child) -> None:
    taken = environment(world.nats, world.redis, FLIGHTLOG_HTTP_PORT=str(child.port))
    code, said = await run(taken)
    assert code == 3
    assert "Traceback" not in said
    child.process.send_signal(signal.SIGTERM)
    await ended(child)


async def test_a_users_projection_is_run_by_the_service(world: World, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Count:\n"
        "    name, version = 'count', 1\n"
        "    def initial(self): return 0\n"
        "    def apply(self, state, event): return state + 1\n"
        "    def encode(self, state): return str(state).encode()\n"
        "    def decode(self, raw): return int(raw)\n"
    )
    env = environment(
        world.nats, world.redis, FLIGHTLOG_PROJECTIONS="mine:Count", PYTHONPATH=str(tmp_path)
    )
    child = await spawn(env)
    await world.put(session(1), *log(1, length=120))
    await world.reaches(session(1), 120)
    held = await Shelf(world.store, "acme", session(1), "count", 1).load()
    assert held.snapshot is not None
    assert held.snapshot.cut.state == b"120"
    await all_quiet(world)
    child.process.send_signal(signal.SIGTERM)
    await ended(child)
