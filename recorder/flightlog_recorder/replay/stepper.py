"""Walking through a session by keys: a key and a view give a new view, and what is to be found out.

Pure: whoever holds the tape answers with `arrived` or `missed`.
"""

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Pane = Literal["event", "state", "diff", "request", "effects", "help"]
Target = Literal["error", "tool call", "words"]

PANE_KEYS: dict[str, Pane] = {
    "v": "event",
    "s": "state",
    "d": "diff",
    "r": "request",
    "x": "effects",
}
PANES: tuple[Pane, ...] = tuple(PANE_KEYS.values())
PAGE = 10  # lines that a page key scrolls
PROMPTS = {"jump": "jump to seq: ", "search": "search: "}


class Prompt(Struct, frozen=True):
    """A question at the bottom, and what was typed so far."""

    kind: Literal["jump", "search"]
    text: str = ""


class View(Struct, frozen=True, kw_only=True):
    """What is looked at: a seq, a pane and how far it is scrolled; `said` is shown once."""

    seq: int
    last: int
    pane: Pane = "event"
    scroll: int = 0
    prompt: Prompt | None = None
    words: str = ""
    said: str = ""


class Go(Struct, frozen=True):
    """Look at this event; one behind the last may have come meanwhile."""

    seq: int


class Last(Struct, frozen=True):
    """Look at the last event there is now."""


class Find(Struct, frozen=True):
    """Look for the next event of that kind, or the previous one."""

    target: Target
    forward: bool
    words: str = ""


class Quit(Struct, frozen=True):
    """Leave."""


Ask = Go | Last | Find | Quit
Pressed = tuple[View, Ask | None]


def press(view: View, key: str) -> Pressed:
    """The view after a key, and what it asks for."""
    view = replace(view, said="")
    if key == "ctrl-c":
        return view, Quit()
    if view.prompt is not None:
        return _typed(view, view.prompt, key)
    if view.pane == "help" and key in ("esc", "q", "?"):
        return _to(view, "event"), None
    if key.isascii() and key.isdigit():
        return replace(view, prompt=Prompt("jump", key)), None
    command = KEYS.get(key)
    return command(view) if command else (missed(view, f"{key} is no key here: ? lists them"), None)


def arrived(view: View, seq: int, last: int) -> View:
    """The view at another event; the pane starts at its top."""
    if seq == view.seq:
        end = "this is the last event" if seq == last else "this is the first event"
        return replace(view, last=last, said=end if seq in (0, 1, last) else "")
    return replace(view, seq=seq, last=last, scroll=0)


def missed(view: View, why: str) -> View:
    """The view where it was, and why."""
    return replace(view, said=why)


def scrolled(view: View, lines: int, room: int) -> View:
    """The view with its scroll within what there is to see."""
    return replace(view, scroll=max(0, min(view.scroll, lines - room)))


def nothing(ask: Find) -> str:
    """What to say when there is no such event."""
    if ask.target == "words":
        return f"no match for {ask.words}"
    return f"no {'later' if ask.forward else 'earlier'} {ask.target}"


def round_the_end(view: View, ask: Find, found: int) -> str:
    """What to say of a match that was found beyond the log's end, from the other one on."""
    if found == view.seq:
        return f"the only match for {ask.words}"
    if ask.forward:
        return "none behind it: went on from the first event"
    return "none before it: went on from the last event"


def _typed(view: View, prompt: Prompt, key: str) -> Pressed:
    match key:
        case "esc":
            return replace(view, prompt=None), None
        case "enter":
            return _answered(replace(view, prompt=None), prompt)
        case "backspace":
            left = replace(prompt, text=prompt.text[:-1]) if prompt.text else None
            return replace(view, prompt=left), None
        case _ if len(key) == 1 and key.isprintable():
            return replace(view, prompt=replace(prompt, text=prompt.text + key)), None
        case _:
            return view, None


def _answered(view: View, prompt: Prompt) -> Pressed:
    text = prompt.text.strip()
    if not text:
        return (replace(view, words="") if prompt.kind == "search" else view), None
    if prompt.kind == "search":
        if (why := _misfit(text)) is not None:
            return missed(view, f"no regular expression: {why}"), None
        return _search(replace(view, words=text), forward=True)
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit()):
        return missed(view, f"{text} is no seq"), None
    return view, Go(max(1, int(digits[:18])))


def _search(view: View, *, forward: bool) -> Pressed:
    if not view.words:
        return missed(view, "nothing to search for: / asks"), None
    return view, Find("words", forward, view.words)


def _misfit(words: str) -> str | None:
    """Why it cannot be searched for: what is lit on the screen must be a pattern, always."""
    try:
        re.compile(words)
    except (re.error, RecursionError, OverflowError) as exc:
        return str(exc)
    return None


def _to(view: View, pane: Pane) -> View:
    return replace(view, pane=pane, scroll=0)


def _pane(pane: Pane) -> "_Command":
    return lambda view: (_to(view, pane), None)


def _turn(view: View, by: int) -> Pressed:
    at = PANES.index(view.pane) if view.pane in PANES else 0
    return _to(view, PANES[(at + by) % len(PANES)]), None


def _scroll(by: int) -> "_Command":
    return lambda view: (replace(view, scroll=max(0, view.scroll + by)), None)


def _ask(kind: Literal["jump", "search"]) -> "_Command":
    return lambda view: (replace(view, prompt=Prompt(kind)), None)


def _find(target: Target, *, forward: bool) -> "_Command":
    return lambda view: (view, Find(target, forward))


_Command = Callable[[View], Pressed]
_forward: _Command = lambda view: (view, Go(view.seq + 1))  # noqa: E731 - a row of the table below
_back: _Command = lambda view: (view, Go(max(1, view.seq - 1)))  # noqa: E731 - as above

KEYS: dict[str, _Command] = {
    **dict.fromkeys(("right", "l", " "), _forward),
    **dict.fromkeys(("left", "h", "backspace"), _back),
    **dict.fromkeys(("home", "<"), lambda view: (view, Go(1))),
    **dict.fromkeys(("end", ">", "G"), lambda view: (view, Last())),
    **dict.fromkeys(("g", ":"), _ask("jump")),
    "e": _find("error", forward=True),
    "E": _find("error", forward=False),
    "t": _find("tool call", forward=True),
    "T": _find("tool call", forward=False),
    "/": _ask("search"),
    "n": lambda view: _search(view, forward=True),
    "N": lambda view: _search(view, forward=False),
    **dict.fromkeys(("down", "j"), _scroll(1)),
    **dict.fromkeys(("up", "k"), _scroll(-1)),
    "pagedown": _scroll(PAGE),
    "pageup": _scroll(-PAGE),
    **{key: _pane(pane) for key, pane in PANE_KEYS.items()},
    "?": _pane("help"),
    "tab": lambda view: _turn(view, 1),
    "backtab": lambda view: _turn(view, -1),
    **dict.fromkeys(("q", "esc"), lambda view: (view, Quit())),
}

HELP = (
    ("right  l  space", "the next event"),
    ("left   h", "the event before"),
    ("g  :  or a number", "jump to a seq"),
    ("<  >  home end", "the first event, the last one"),
    ("e  E", "the next error, the one before"),
    ("t  T", "the next tool call, the one before"),
    ("/", "search in all texts, a regular expression; empty: light nothing"),
    ("n  N", "the next match, the one before; goes round the ends"),
    ("v  s  d", "show the event, the state, the difference it made"),
    ("r  x", "the exact model request, the effects that lie behind"),
    ("tab", "the next of these"),
    ("up down  j k", "scroll; pageup and pagedown by more"),
    ("q  esc", "leave; stop a search that takes long"),
)
