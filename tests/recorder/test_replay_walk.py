"""`flightlog replay --step` in a real terminal: real keys, and the terminal given back."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.handmade import chain, follow
from tests.scripted import until

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

GOLDEN = Path(__file__).parents[1] / "golden" / "events-v1.jsonl"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"


class Screen:
    """A process in a pseudo-terminal: what it draws is what was written since the last frame."""

    def __init__(self, master: int, pid: int) -> None:
        self._master, self.pid = master, pid
        self.written = ""

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def frame(self) -> list[str]:
        """The lines of the last complete frame, without colours."""
        self._read()
        drawn = self.written.rpartition("\x1b[J")[0].rpartition("\x1b[H")[2]
        return [ESCAPES.sub("", line).rstrip() for line in drawn.split("\r\n")]

    async def shows(self, *texts: str) -> list[str]:
        """Wait for a frame that holds all of these."""

        def held() -> list[str] | None:
            whole = "\n".join(lines := self.frame)
            return lines if all(text in whole for text in texts) else None

        try:
            found: list[str] = await until(held)
        except AssertionError:
            raise AssertionError(f"{texts} not in\n" + "\n".join(self.frame)) from None
        return found

    async def ended(self) -> int:
        """Wait for its end; the exit code, or minus the signal."""

        def code() -> list[int] | None:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return [os.waitstatus_to_exitcode(status)] if pid else None

        [found] = await until(code)
        self.pid = 0
        self._read()
        return int(found)

    def settings(self) -> list[object]:
        """The terminal's settings."""
        return termios.tcgetattr(self._master)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self._master, 1 << 16):
                self.written += data.decode("utf-8", "replace")


@contextmanager
def stepping(path: Path, *options: str, size: tuple[int, int] = (100, 30)) -> Generator[Screen]:
    master, slave = pty.openpty()
    screen = Screen(master, 0)
    screen.resize(*size)
    os.set_blocking(master, False)
    command = [sys.executable, "-m", "flightlog_recorder", "replay", "--file", str(path)]
    screen.pid = os.posix_spawn(
        sys.executable,
        [*command, "--step", *options],
        {**os.environ, "TERM": "xterm-256color"},
        file_actions=[(os.POSIX_SPAWN_DUP2, slave, fd) for fd in range(3)],
        setsid=True,
    )
    try:
        yield screen
    finally:
        if screen.pid:
            os.kill(screen.pid, signal.SIGKILL)
            os.waitpid(screen.pid, 0)
        os.close(slave)
        os.close(master)


async def test_keys_walk_through_a_session() -> None:
    with stepping(GOLDEN, "--until", "20") as screen:
        before = screen.settings()
        lines = await screen.shows("20 of 39", "2 tool calls completed")
        assert len(lines) == 30
        assert [line.split()[1] for line in lines if line.startswith("▸")] == ["20"]
        screen.type("\x1b[C")
        await screen.shows("21 of 39")
        screen.type("hh")
        await screen.shows("19 of 39")
        screen.type("g7\r")
        await screen.shows("7 of 39")
        screen.type("e")
        await screen.shows("15 of 39")
        screen.type("e")
        await screen.shows("18 of 39")
        screen.type("E")
        await screen.shows("15 of 39")
        screen.type("T")
        await screen.shows("11 of 39")
        screen.type("/Overloaded\r")
        await screen.shows("38 of 39")
        screen.type("e")
        await screen.shows("38 of 39", "no later error")
        screen.type("G")
        await screen.shows("39 of 39")
        screen.type("99\r")
        await screen.shows("39 of 39", "this is the last event")
        screen.type("q")
        assert await screen.ended() == 0
        assert screen.settings() == before
        assert screen.written.index(ENTERED) < screen.written.index(LEFT)


async def test_panes_show_event_state_difference_request_and_effects() -> None:
    with stepping(GOLDEN, "--until", "20") as screen:
        await screen.shows("call_id: call_3", "resolved_by: person")
        screen.type("d")
        await screen.shows('~ next: "RunTools" -> "CallModel"')
        screen.type("s")
        await screen.shows("context, latest first", "schedule: lés fichiers ?")
        screen.type("x")
        await screen.shows("1 external effect after 20 is not undone: 22 effect")
        screen.type("24\r")
        await screen.shows("24 of 39")
        screen.type("r")
        await screen.shows("made from the log up to 23, proved by", "model: claude-x")
        screen.type("?")
        await screen.shows("the next tool call, the one before")
        screen.type("\x1b")
        await screen.shows("24 of 39", "answers 23")
        screen.type("\x03")
        assert await screen.ended() == 0


async def test_a_search_goes_round_the_end_and_says_so() -> None:
    with stepping(GOLDEN, "--until", "38") as screen:
        await screen.shows("38 of 39")
        screen.type("/lés fichiers\r")
        await screen.shows("4 of 39", "none behind it: went on from the first event")
        screen.type("N")
        await screen.shows("4 of 39", "the only match for lés fichiers")
        screen.type("/tool_result\r")
        await screen.shows("8 of 39")
        screen.type("N")
        await screen.shows("went on from the last event")
        screen.type("/nowhere\r")
        await screen.shows("no match for nowhere")
        screen.type("w")
        await screen.shows("w is no key here: ? lists them")
        screen.type("q")
        assert await screen.ended() == 0


async def test_the_pane_is_scrolled_to_what_was_searched_for(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    text = "\n".join(f"line {n}" for n in range(200))
    events = [*chain(2)]
    events.append(follow(events[-1], type="user_message", payload={"content": text}))
    path.write_bytes(b"".join(event.body + b"\n" for event in events))
    with stepping(path) as screen:
        await screen.shows("1 of 3")
        screen.type("/line 150\r")
        await screen.shows("3 of 3", "line 150")
        screen.type("q")
        assert await screen.ended() == 0


async def test_a_line_as_wide_as_the_screen_keeps_its_last_sign() -> None:
    with stepping(GOLDEN, "--until", "20", size=(60, 12)) as screen:
        lines = await screen.shows("20 of 39")
        assert any(line.endswith("…") and len(line) == 60 for line in lines)
        full = screen.written.rpartition("\x1b[J")[0].split("\r\n")
        assert not any(line.endswith(("…\x1b[K", "…\x1b[0m\x1b[K")) for line in full)
        screen.type("q")
        assert await screen.ended() == 0


async def test_a_file_that_goes_away_while_walking_gives_the_terminal_back(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(each.body + b"\n" for each in chain(30_000)))
    with stepping(path) as screen:
        before = screen.settings()
        await screen.shows("1 of 30,000")
        path.unlink()
        screen.type("20000\r")
        assert await screen.ended() == 1
        assert screen.settings() == before
        assert "s.jsonl" in screen.written[screen.written.rindex(LEFT) :]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_gives_the_terminal_back(number: signal.Signals) -> None:
    with stepping(GOLDEN) as screen:
        before = screen.settings()
        await screen.shows("1 of 39")
        assert screen.settings() != before
        os.kill(screen.pid, number)
        assert await screen.ended() == 128 + number
        assert screen.settings() == before
        assert screen.written.rindex(LEFT) > screen.written.rindex("\x1b[J")


async def test_a_file_that_breaks_while_walking_is_a_message_and_gives_the_terminal_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "s.jsonl"
    events = chain(6)
    path.write_bytes(b"".join(each.body + b"\n" for each in [*events[:3], *events[4:]]))
    with stepping(path) as screen:
        before = screen.settings()
        await screen.shows("1 of 3")
        screen.type("G")
        await screen.shows("3 of 3", "s.jsonl is damaged after seq 3")
        screen.type("q")
        assert await screen.ended() == 1
        assert screen.settings() == before


async def test_a_long_search_is_stopped_by_a_key_and_the_place_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(each.body + b"\n" for each in chain(100_000)))
    with stepping(path) as screen:
        await screen.shows("1 of 100,000")
        screen.type("/nowhere\r")
        await until(lambda: screen.frame and "reading the log" in screen.written)
        screen.type("\x1b")
        await screen.shows("1 of 100,000", "stopped")
        screen.type("lq")
        assert await screen.ended() == 0


async def test_the_screen_follows_the_size_of_the_terminal() -> None:
    with stepping(GOLDEN, "--until", "20", size=(60, 12)) as screen:
        assert len(await screen.shows("20 of 39")) == 12
        screen.resize(160, 40)
        os.kill(screen.pid, signal.SIGWINCH)
        await screen.shows("20 of 39", " │ ")
        assert len(screen.frame) == 40
        screen.type("q")
        assert await screen.ended() == 0


async def test_hostile_texts_stay_texts_on_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    nasty = "a\x1b[2Jb\u202ec\x9b\x07\n\x1b]0;x" + "y" * 100_000
    first = follow(None, type="user_message", payload={"content": nasty})
    second = follow(first, type=nasty[:40], payload={nasty: [nasty, {"a": nasty}]})
    path.write_bytes(first.body + b"\n" + second.body + b"\n")
    with stepping(path) as screen:
        for keys in ("v", "s", "d", "G", "v", "d"):
            screen.type(keys)
            lines = await screen.shows("of 2")
            assert len(lines) == 30
            assert max(map(len, lines)) <= 100
        screen.type("q")
        assert await screen.ended() == 0
        drawn = ESCAPES.sub("", screen.written)
        assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(drawn)
        assert "\\u001b[2Jb\\u202ec" in drawn


async def test_it_is_refused_where_there_is_no_terminal() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flightlog_recorder", "replay", "--file", str(GOLDEN), "--step"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert b"--step is for a person at a terminal" in err
