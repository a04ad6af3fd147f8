"""What `flightlog replay` prints: a state, events, a delta, a request, a parting."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from flightlog import Event
from flightlog.session_state import SessionState
from flightlog_recorder.cli.output import (
    is_terminal,
    note,
    number,
    plural,
    printable,
    say,
    say_briefly,
    show_json,
)
from flightlog_recorder.cli.tail import STYLES
from flightlog_recorder.replay import delta as deltas
from flightlog_recorder.replay import effects as outside
from flightlog_recorder.replay import picture, strip, summary
from flightlog_recorder.replay.compare import Parting
from flightlog_recorder.replay.delta import Change
from flightlog_recorder.replay.effects import Effects
from flightlog_recorder.replay.request import Proved
from flightlog_recorder.replay.strip import Strip
from flightlog_recorder.replay.tape import Looked, Tape

LISTED = 10  # events of a long --diff that are told one by one


def show_state(tape: Tape, looked: Looked, event: Event | None) -> None:
    """The state in a few lines: where it stands, how it was made, what it waits for."""
    state = looked.state
    say((tape.session, "bold"), f"  seq {number(state.seq)} of {number(tape.last)}")
    say((how(looked), "dim"))
    if event is not None:
        say("")
        show_event(event)
    say("")
    say((printable(summary.headline(state)), "bold"))
    for name, text in summary.lines(state):
        say_briefly((f"{name:<8} ", "dim"), printable(text))


def how(looked: Looked) -> str:
    """How the state was made: `snapshot @ 40, applied 41..47`."""
    base = f"snapshot @ {looked.stored}" if looked.stored else "no snapshot before it"
    applied = looked.applied
    if not applied:
        return f"{base}, nothing to apply"
    some = f"{applied[0]}..{applied[-1]}" if len(applied) > 1 else f"{applied[0]}"
    return f"{base}, applied {some}"


def show_effects(found: Effects, *, after: int) -> None:
    """What was done outside behind this point, if anything."""
    if text := outside.told(found, after=after):
        say("")
        say(("! ", "bold red"), printable(text))


def state_document(tape: Tape, looked: Looked, left: Effects) -> dict[str, Any]:
    """The same for machines, the state as a whole."""
    state, applied = looked.state, looked.applied
    return {
        "session": tape.session,
        "seq": state.seq,
        "last": tape.last,
        "snapshot": looked.stored or None,
        "applied": [applied[0], applied[-1]] if applied else None,
        "headline": summary.headline(state),
        "state": picture.whole(picture.picture(state)),
        "effects_after": msgspec.to_builtins(left),
        "damage": tape.damage,
    }


def show_event(event: Event) -> None:
    """The event in one line."""
    when = event.ts[11:19] if len(event.ts) > 19 else event.ts
    say_briefly(
        (f"{event.seq:>6}  {printable(when)}  ", "dim"),
        (f"{printable(event.type):<18}  ", STYLES.get(event.type, "")),
        printable(strip.event_line(event)),
    )


def show_diff(
    tape: Tape,
    events: Sequence[Event],
    before: SessionState,
    after: SessionState,
    *,
    carried: msgspec.Raw | None,
) -> None:
    """The events, then what they changed; that of a single one with all that it carries."""
    say(
        (tape.session, "bold"),
        f"  {number(before.seq)}..{number(after.seq)} of {number(tape.last)}",
    )
    say("")
    for event in events[:LISTED]:
        show_event(event)
    if (left := len(events) - LISTED) > 0:
        say((f"        and {plural(left, 'more event')}", "dim"))
    if carried is not None:
        show_lines(strip.payload(carried, most=40), indent=" " * 8)
    say("")
    say((printable(f"{summary.headline(before)}  ->  {summary.headline(after)}"), "bold"))
    show_lines(strip.changes(picture.changes(before, after)))


def show_diff_json(
    tape: Tape, events: Sequence[Event], before: SessionState, after: SessionState
) -> None:
    """The same for machines."""
    show_json(
        {
            "session": tape.session,
            "from": before.seq,
            "to": after.seq,
            "events": [picture.whole(msgspec.Raw(event.body)) for event in events],
            "changes": [change_document(each) for each in picture.changes(before, after)],
        }
    )


def change_document(change: Change) -> dict[str, Any]:
    """A change for machines; its path as steps and as text."""
    found: dict[str, Any] = {"kind": change.kind, "path": list(change.path)}
    found["at"] = deltas.shown(change.path)
    if change.kind != "added":
        found["old"] = change.old
    if change.kind != "removed":
        found["new"] = change.new
    return found


def show_request(proved: Proved, *, json: bool) -> None:
    """The request on stdout, its proof on stderr; a pipe gets the bytes that were hashed."""
    if json:
        show_json(
            {
                "session": proved.session,
                "seq": proved.seq,
                "upto": proved.upto,
                "digest": proved.digest,
                "proved": True,
                "request": msgspec.json.decode(proved.body),
            }
        )
        return
    if is_terminal():
        show_lines(strip.value(msgspec.Raw(proved.body)))
    else:
        sys.stdout.buffer.write(proved.body)
        sys.stdout.buffer.flush()
    note(
        f"request {proved.seq}, made from the log up to {proved.upto}, proved by its"
        f" sha256 {proved.digest}"
    )


def show_parting(one: Tape, other: Tape, parting: Parting) -> None:
    """Where two sessions part, and what each did then."""
    same = plural(parting.same, "event")
    say(("the same ", ""), (f"up to seq {number(parting.same)}", "bold"), f" ({same})")
    if parting.forked_at is not None:
        say((f"one is a fork of the other at seq {number(parting.forked_at)}", "dim"))
    for tape, event in ((one, parting.one), (other, parting.other)):
        say("")
        say((tape.session, "bold"), f"  {_goes_on(tape, parting.same)}")
        if event is not None:
            show_event(event)
    if parting.changes:
        say("")
        show_lines(strip.payload_changes(parting.changes))


def _goes_on(tape: Tape, same: int) -> str:
    left = tape.last - same
    return f"goes on for {plural(left, 'event')}" if left > 0 else "ends there"


def show_parting_json(one: Tape, other: Tape, parting: Parting) -> None:
    """The same for machines."""
    sides = ((one, parting.one), (other, parting.other))
    show_json(
        {
            "same": parting.same,
            "forked_at": parting.forked_at,
            "sessions": [
                {
                    "session": tape.session,
                    "last": tape.last,
                    "event": picture.whole(msgspec.Raw(event.body)) if event else None,
                }
                for tape, event in sides
            ],
            "changes": [change_document(each) for each in parting.changes],
        }
    )


def show_lines(lines: Sequence[Strip], *, indent: str = "") -> None:
    """Lines as they are, masked; a terminal gets as much of each as fits."""
    for line in lines:
        say_briefly(indent, (printable(line.text), line.style))
