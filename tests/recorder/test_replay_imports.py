"""Imported sessions are what the debugger is tried on: every pane of every event of them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from flightlog.event import Event
from flightlog.session_state import SessionState
from flightlog_recorder.importer import read_claude_code, read_codex
from flightlog_recorder.replay import picture, screen, strip, summary, tape
from flightlog_recorder.replay.exported import FileSource
from flightlog_recorder.replay.screen import Shown
from flightlog_recorder.replay.stepper import View
from flightlog_recorder.replay.strip import Strip
from tests.recorder.imported import chained

DATA = Path(__file__).parent / "data"
TRANSCRIPTS = [*sorted((DATA / "codex").glob("*.jsonl")), *sorted(DATA.glob("*.jsonl"))]
WIDTHS = (60, 80, 150)


def events_of(path: Path) -> list[Event]:
    read = read_codex if path.parent.name == "codex" else read_claude_code
    return chained(read(path))


def panes(event: Event, before: SessionState, state: SessionState) -> list[list[Strip]]:
    told = [*summary.context(state), *(f"{name} {text}" for name, text in summary.lines(state))]
    return [
        strip.payload(event.raw),
        [Strip(line) for line in told],
        strip.value(picture.apart(state)),
        strip.changes(picture.changes(before, state)),
    ]


def fits(lines: Sequence[Strip], width: int) -> bool:
    return all(cell_len(each.text) <= width and each.text.isprintable() for each in lines)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
async def test_every_pane_of_every_event_of_an_import_can_be_shown(
    path: Path, tmp_path: Path
) -> None:
    events = events_of(path)
    copy = tmp_path / "s.jsonl"
    copy.write_bytes(b"".join(event.body + b"\n" for event in events))
    found = await tape.opened(FileSource(copy))
    assert found.last == len(events)
    for event in events:
        before, state = (
            (await found.state(event.seq - 1)).state,
            (await found.state(event.seq)).state,
        )
        assert state.seq == event.seq
        assert summary.headline(state)
        shown = panes(event, before, state)
        for width in WIDTHS:
            for pane in shown:
                assert fits(screen.wrapped(pane, width), width)
            view = View(seq=event.seq, last=found.last)
            around = [
                await found.event(seq) for seq in screen.window(view, screen.room(width, 24).rows)
            ]
            frame = screen.frame(
                view, Shown("s", around, summary.headline(state), shown[0]), width, 24
            )
            assert len(frame) == 24
            assert "▸" in "".join(line.left.plain for line in frame)
