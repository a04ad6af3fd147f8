"""What a walk shows, line by line, in any size and whatever a log holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from flightlog.event import Event
from flightlog_recorder.cli.output import printable
from flightlog_recorder.replay import screen
from flightlog_recorder.replay.screen import Line, Shown
from flightlog_recorder.replay.stepper import PANES, Pane, Prompt, View
from flightlog_recorder.replay.strip import Strip
from tests.handmade import chain, follow

SESSION = "sess_01a22bc847da711199f618d270f28123"
TEXTS = st.text(st.sampled_from("ab 漢é́\u200d\u202e👩🇩ש.\x1b\n\t"), max_size=300)


TABS = 8  # the line of the panes' names on a screen of 20


def shown(pane: list[Strip], *, session: str = SESSION) -> Shown:
    return Shown(session, chain(5), "waiting for the user", pane)


def plain(line: Line) -> str:
    left = line.left.plain[: line.at] if line.right else line.left.plain
    return left.ljust(line.at) + (line.right.plain if line.right else "")


def drawn(columns: int, *, rows: int = 20, lines: int = 3, view: View | None = None) -> list[str]:
    seen = view or View(seq=2, last=5)
    pane = [Strip(f"line {n}") for n in range(lines)]
    return [plain(line) for line in screen.frame(seen, shown(pane), columns, rows)]


@pytest.mark.parametrize(
    ("columns", "title"),
    [
        (120, f" flightlog replay   {SESSION}"),
        (60, f" {SESSION}"),
    ],
)
def test_a_narrow_title_keeps_the_session_and_the_place(columns: int, title: str) -> None:
    first = drawn(columns)[0]
    assert first.startswith(title)
    assert first.rstrip().endswith("2 of 5")
    assert len(first) == columns


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80, 129, 130, 200])
def test_the_keys_that_help_and_leave_are_shown_in_any_width(columns: int) -> None:
    last = drawn(columns)[-1]
    assert "? help   q quit" in last
    assert len(last) < columns


def test_each_pane_stands_with_its_key_where_there_is_room() -> None:
    assert "─ v event ─ s state ─ d diff ─ r request ─ x effects ─" in drawn(80)[TABS]
    assert "─ event ─ state ─ diff ─ request ─ effects ─" in drawn(50)[TABS]


def test_lines_above_and_below_are_counted() -> None:
    assert drawn(80, lines=40)[TABS].endswith("↓ 30 ─")
    assert drawn(80, lines=40, view=View(seq=2, last=5, scroll=7))[TABS].endswith("↑ 7 ↓ 23 ─")


def test_a_long_line_goes_on_between_words_and_further_right() -> None:
    lines = screen.wrapped([Strip("  key: " + "word " * 12 + "x" * 50, "dim")], 40)
    assert [line.text for line in lines] == [
        "  key: word word word word word word",
        "    word word word word word word",
        "    " + "x" * 36,
        "    " + "x" * 14,
    ]
    assert {line.style for line in lines} == {"dim"}


@given(TEXTS, st.integers(18, 90))
def test_no_piece_of_a_line_is_wider_than_its_place_and_nothing_is_lost(
    text: str, width: int
) -> None:
    pieces = [line.text for line in screen.wrapped([Strip(text)], width)]
    assert pieces
    assert all(cell_len(piece) <= width and piece.isprintable() for piece in pieces)
    masked = printable(text)
    assert "".join("".join(pieces).split()) == "".join(masked.split())


@given(
    st.lists(TEXTS, max_size=8),
    TEXTS,
    st.integers(20, 200),
    st.integers(6, 60),
    st.sampled_from((*PANES, "help")),
)
def test_a_frame_fits_the_screen_and_moves_no_cursor(
    texts: list[str], session: str, columns: int, rows: int, name: Pane
) -> None:
    events: list[Event] = []
    for text in texts:
        before = events[-1] if events else None
        events.append(follow(before, type=text[:30] or "note", payload={"content": text}))
    view = View(
        seq=1, last=max(1, len(events)), pane=name, words="a", prompt=Prompt("search", session)
    )
    space = screen.room(columns, rows)
    pane = screen.wrapped([Strip(text) for text in texts], space.right - 2)
    around = events[: len(screen.window(view, space.rows))]
    seen = Shown(session, around, session, pane, damage=session)
    frame = screen.frame(view, seen, columns, rows)
    assert len(frame) == rows
    for line in frame:
        parts = [line.left.plain, line.right.plain if line.right else ""]
        assert all(part.isprintable() for part in parts)
        assert line.at < columns


def test_what_was_searched_for_is_lit_in_the_list_and_the_pane() -> None:
    view = View(seq=2, last=5, words="NO.E|line 2")
    frame = screen.frame(view, shown([Strip("line 1"), Strip("line 2")]), 100, 20)
    lit = [
        line.left.plain[span.start : span.end]
        for line in frame
        for span in line.left.spans
        if span.style == screen.LIT
    ]
    assert set(lit) == {"note", "line 2"}
    assert screen.first_with("E 2", [Strip("line 1"), Strip("line 2")]) == 1
    assert screen.first_with("zzz", [Strip("line 1")]) is None
