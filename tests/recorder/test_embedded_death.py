"""Whatever dies, and however: no server outlives the process that started it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flightlog_recorder.embedded import embedded
from flightlog_recorder.embedded.child import Child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

DEADLINE = 15.0  # seconds; an orphan has 3 s to end well, then it is killed

OWNER = textwrap.dedent("""
    import sys, threading
    from pathlib import Path
    from flightlog_recorder.embedded import embedded
    with embedded(Path(sys.argv[1])) as found:
        print(found.nats.pid, found.redis.pid, flush=True)
        sys.stdin.read()
""")


@contextmanager
def owner(data: Path) -> Generator[subprocess.Popen[str]]:
    """A process that owns servers on `data`, until it is killed or its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout
    return [int(pid) for pid in process.stdout.readline().split()]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie, which nobody has reaped yet, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except OSError:
        return False
    return not state.startswith("Z")


def processes_on(data: Path) -> list[bytes]:
    """The command lines, beside the owner's own, that name something below `data`."""
    found: list[bytes] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes())
    return [line for line in found if f"{data}/".encode() in line]


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE} s: {what}"
        time.sleep(0.01)


def test_servers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with owner(tmp_path / "data") as process:
        servers = pids(process)
        assert len(servers) == 2
        assert all(alive(pid) for pid in servers)
        process.kill()
        eventually(lambda: not any(map(alive, servers)), "the servers of a killed process end")


@pytest.mark.parametrize("moment", ["lock", "nats/nats.conf", "nats/server.log", "valkey"])
def test_a_parent_killed_while_it_starts_leaves_no_server(tmp_path: Path, moment: str) -> None:
    data = tmp_path / "data"
    with owner(data) as process:
        eventually((data / moment).exists, f"{moment} appears")
        process.kill()
        process.wait()
        eventually(lambda: not processes_on(data), "nothing runs on the data")


def test_data_of_a_killed_process_can_be_used_at_once(tmp_path: Path) -> None:
    with owner(tmp_path / "data") as process:
        servers = pids(process)
        process.kill()
        process.wait()
        with embedded(tmp_path / "data") as found:
            assert not any(map(alive, servers)), "two servers would have shared one store"
            assert found.nats
            assert found.nats.running


def test_servers_end_in_good_order_when_their_owner_does(tmp_path: Path) -> None:
    with owner(tmp_path / "data") as process:
        servers = pids(process)
        process.communicate()
        assert process.returncode == 0
        assert not any(map(alive, servers))


def test_a_server_dies_with_its_guard(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], log=tmp_path / "log")
    try:
        guard = int(Path(f"/proc/{child.pid}/stat").read_text().split()[3])
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: not alive(child.pid), "the program of a killed guard ends")
    finally:
        child.kill()


def test_a_process_forked_by_the_parent_keeps_no_server_alive(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import os, subprocess, sys, time
        from pathlib import Path
        from flightlog_recorder.embedded.child import Child
        child = Child(["sleep", "60"], log=Path(sys.argv[1]))
        heir = os.fork()
        if heir == 0:
            time.sleep(60)
        print(child.pid, heir, flush=True)
        sys.stdin.read()
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "log")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        program, heir = pids(parent)
        try:
            parent.kill()
            eventually(lambda: not alive(program), "the pipe is open, but the parent is gone")
            assert alive(heir)
        finally:
            os.kill(heir, signal.SIGKILL)


def test_a_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[Child] = []
    thread = threading.Thread(
        target=lambda: started.append(Child(["sleep", "60"], log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    assert not started[0].wait(0.2), "it ended with its thread"
    started[0].kill()
    assert not started[0].alive


def test_an_interrupt_from_the_keyboard_reaches_only_the_owner(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], log=tmp_path / "log")
    try:
        assert os.getpgid(child.pid) != os.getpgid(0)
        assert os.getsid(child.pid) != os.getsid(0)
    finally:
        child.kill()


def test_a_program_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    deaf = ["sh", "-c", "trap '' TERM; echo deaf >&2; while :; do sleep 60; done"]
    child = Child(deaf, log=tmp_path / "log")
    eventually(lambda: "deaf" in (tmp_path / "log").read_text(), "the trap is set")
    child.stop(deadline=0.1)
    assert not alive(child.pid)


def test_a_program_that_does_not_exist_is_not_alive(tmp_path: Path) -> None:
    child = Child(["/no/such/program"], log=tmp_path / "log")
    assert child.wait(DEADLINE)
    assert not child.alive
    assert "No such file" in (tmp_path / "log").read_text()
