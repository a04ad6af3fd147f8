"""Walking by keys, as a pure machine: a key and a view give a view and a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog_recorder.replay import stepper
from flightlog_recorder.replay.keys import Keys
from flightlog_recorder.replay.stepper import (
    KEYS,
    Ask,
    Find,
    Go,
    Last,
    Prompt,
    Quit,
    View,
    arrived,
    missed,
    nothing,
    press,
    round_the_end,
    scrolled,
)

VIEW = View(seq=47, last=120)


def typed(view: View, *keys: str) -> tuple[View, Ask | None]:
    """The view after these keys, and what the last of them asked."""
    ask = None
    for key in keys:
        view, ask = press(view, key)
    return view, ask


@pytest.mark.parametrize(
    ("keys", "ask"),
    [
        (("right",), Go(48)),
        (("l",), Go(48)),
        ((" ",), Go(48)),
        (("left",), Go(46)),
        (("h",), Go(46)),
        (("home",), Go(1)),
        (("end",), Last()),
        (("g", "9", "9", "enter"), Go(99)),
        (("1", "0", "0", "enter"), Go(100)),
        (("g", "1", ",", "0", "0", "0", "enter"), Go(1000)),
        (("7", "backspace", "8", "enter"), Go(8)),
        (("e",), Find("error", forward=True)),
        (("E",), Find("error", forward=False)),
        (("t",), Find("tool call", forward=True)),
        (("T",), Find("tool call", forward=False)),
        (("/", "a", ".", "b", "enter"), Find("words", forward=True, words="a.b")),
        (("q",), Quit()),
        (("esc",), Quit()),
        (("ctrl-c",), Quit()),
        (("/", "ctrl-c"), Quit()),
        (("/", "q"), None),
        (("g", "9", "esc"), None),
        (("g", "enter"), None),
        (("resized",), None),
    ],
)
def test_a_key_asks_for_one_thing(keys: tuple[str, ...], ask: Ask | None) -> None:
    assert typed(VIEW, *keys)[1] == ask


@pytest.mark.parametrize(
    ("key", "pane"),
    [
        ("v", "event"),
        ("s", "state"),
        ("d", "diff"),
        ("r", "request"),
        ("x", "effects"),
        ("?", "help"),
    ],
)
def test_a_pane_has_its_key_and_starts_at_its_top(key: str, pane: str) -> None:
    view, ask = press(View(seq=1, last=2, pane="diff", scroll=9), key)
    assert (view.pane, view.scroll, ask) == (pane, 0, None)


def test_tab_goes_round_the_panes() -> None:
    view = VIEW
    seen = [view.pane]
    for _ in stepper.PANES:
        view = press(view, "tab")[0]
        seen.append(view.pane)
    assert seen == [*stepper.PANES, "event"]
    assert press(view, "backtab")[0].pane == "effects"


def test_help_is_left_by_the_key_that_would_quit() -> None:
    view, ask = typed(VIEW, "?", "q")
    assert (view.pane, ask) == ("event", None)


def test_the_search_goes_on_with_the_same_words_either_way() -> None:
    view, _ = typed(VIEW, "/", "x", "enter")
    assert press(view, "n")[1] == Find("words", forward=True, words="x")
    assert press(view, "N")[1] == Find("words", forward=False, words="x")


def test_what_cannot_be_searched_for_is_said_and_not_asked() -> None:
    view, ask = press(VIEW, "n")
    assert (ask, view.said) == (None, "nothing to search for: / asks")
    for words in ("(", "*", "\\", "a{99999999999}"):
        view, ask = typed(VIEW, "/", *words, "enter")
        assert (ask, view.words) == (None, VIEW.words)
        assert "no regular expression" in view.said
    view, ask = typed(VIEW, "g", "x", "enter")
    assert (ask, view.said) == (None, "x is no seq")


def test_a_key_that_does_nothing_says_where_the_others_are() -> None:
    for key in ("w", "漢", "enter"):
        view, ask = press(VIEW, key)
        assert (view.said, ask) == (f"{key} is no key here: ? lists them", None)


def test_an_empty_search_lights_nothing_any_more() -> None:
    view, _ = typed(VIEW, "/", "x", "enter")
    assert view.words == "x"
    assert typed(view, "/", "enter") == (VIEW, None)


def test_a_match_beyond_the_end_says_that_the_search_went_round() -> None:
    ahead, back = Find("words", forward=True, words="x"), Find("words", forward=False, words="x")
    assert round_the_end(VIEW, ahead, 3) == "none behind it: went on from the first event"
    assert round_the_end(VIEW, back, 99) == "none before it: went on from the last event"
    assert round_the_end(VIEW, ahead, 47) == "the only match for x"
    assert nothing(ahead) == nothing(back) == "no match for x"
    assert nothing(Find("error", forward=False)) == "no earlier error"


def test_a_message_is_gone_with_the_next_key() -> None:
    assert press(missed(VIEW, "no later error"), "s")[0].said == ""


def test_arriving_shows_the_pane_from_its_top_and_the_log_as_long_as_it_is_now() -> None:
    view = arrived(View(seq=47, last=120, pane="diff", scroll=5), 48, 125)
    assert view == View(seq=48, last=125, pane="diff")
    assert arrived(VIEW, 47, 47).said == "this is the last event"
    assert arrived(View(seq=1, last=9), 1, 9).said == "this is the first event"


def test_scrolling_stays_within_what_there_is() -> None:
    view, _ = typed(VIEW, "down", "pagedown", "up")
    assert view.scroll == 10
    assert scrolled(view, 15, 10).scroll == 5
    assert scrolled(view, 3, 10).scroll == 0
    assert press(VIEW, "up")[0].scroll == 0


@given(st.lists(st.sampled_from([*KEYS, "enter", "backspace", "esc", "5", "x", "é", "f1", "("])))
def test_no_keys_lead_out_of_the_machine(keys: list[str]) -> None:
    view = VIEW
    for key in keys:
        view, ask = press(view, key)
        if isinstance(ask, Go):
            assert ask.seq >= 1
            view = arrived(view, min(ask.seq, view.last), view.last)
        assert 1 <= view.seq <= view.last
        assert view.scroll >= 0
        assert view.prompt is None or isinstance(view.prompt, Prompt)


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"\x1b[C", ["right"]),
        (b"\x1bOD", ["left"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"l\x1b[Aq", ["l", "up", "q"]),
        (b"\r\t\x7f\x03", ["enter", "tab", "backspace", "ctrl-c"]),
        ("é漢".encode(), ["é", "漢"]),
        (b"\x1b[1;5Cx", ["x"]),
        (b"\x1b[Z", ["backtab"]),
        (b"\x1b\x1b[C", ["right"]),
        (b"\x1bqx", ["x"]),
        (b"\x1b\x03", ["ctrl-c"]),
        (b"\x00\x01", []),
    ],
)
def test_bytes_are_keys_wherever_they_are_cut(sent: bytes, keys: list[str]) -> None:
    for cut in range(len(sent) + 1):
        found = Keys()
        got = [*found.feed(sent[:cut]), *found.feed(sent[cut:])]
        assert [key for key in got if key != "esc"] == keys


def test_an_escape_is_the_key_when_nothing_follows() -> None:
    keys = Keys()
    assert keys.feed(b"\x1b") == []
    assert keys.is_waiting
    assert keys.flush() == ["esc"]
    assert not keys.is_waiting


@given(st.binary())
def test_no_bytes_break_the_keys(sent: bytes) -> None:
    keys = Keys()
    found = [*keys.feed(sent), *keys.flush(), *keys.feed(b"\x1b[C" * 40 + b"q")]
    assert found[-1] == "q"
