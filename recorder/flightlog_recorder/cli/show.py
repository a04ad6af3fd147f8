"""`flightlog show`: one session as a whole, and what is odd about it."""

from collections.abc import Iterator
from datetime import datetime
from shlex import quote
from typing import Annotated, Any

import typer

from flightlog.calls import CallState
from flightlog.lineage import Lineage
from flightlog.reading.chain import Stray
from flightlog.usage import Usage as Tokens
from flightlog.wire import stand_in
from flightlog_recorder.cli import target
from flightlog_recorder.cli.lineage import show_tree
from flightlog_recorder.cli.output import (
    Cell,
    Exit,
    dollars,
    fields,
    moment,
    number,
    plural,
    printable,
    say,
    seconds,
    show_json,
    show_table,
)
from flightlog_recorder.cli.target import Json, Target
from flightlog_recorder.inspect.look import Look, look
from flightlog_recorder.inspect.overview import Overview, abandoned, in_flight, undecided

COLUMNS = ("tool", "calls", "ok", "error", "unknown", "cancelled", "open", "time")
TOLD = 5  # of each kind of oddity; the rest is counted


def show(
    context: typer.Context,
    *,
    session: Annotated[str | None, typer.Argument(help="A session's id, or its key.")] = None,
    key: Annotated[str | None, typer.Option(help="A session's key.")] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Draw where it comes from and what came of it.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a session: turns, tools, tokens, and what is odd. Exit code 1 if its log is damaged.

    With --tree its family instead, from the catalog: ancestors, forks, and sessions of its calls.
    """
    work = _tree if tree else _show
    target.run(work(target.of(context), session, key, json=json))


async def _tree(where: Target, session: str | None, key: str | None, *, json: bool) -> None:
    target.one_session(session, key)
    async with where.log() as log:
        await show_tree(log, await target.session_id(log, session, key=key), json=json)


async def _show(where: Target, session: str | None, key: str | None, *, json: bool) -> Exit:
    target.one_session(session, key)
    async with where.log() as log:
        found = await target.session_id(log, session, key=key)
        seen = await look(log.bus, log.tenant, found)
    if json:
        show_json(_document(seen))
    else:
        _tell(seen)
    return Exit.PROBLEM if seen.damage else Exit.FINE


def _tell(seen: Look) -> None:
    for line in _head(seen.session, seen.overview):
        say(*line)
    tools = seen.overview.tools
    if tools:
        say("")
        show_table(COLUMNS, _tools(seen.overview), right=" ".join(COLUMNS[1:]), shrink="tool")
    say("")
    odd = list(_oddities(seen))
    if not odd:
        say(("nothing odd", "green"))
    for what, how in odd:
        say(("! ", "bold red"), what)
        if how:
            say(f"    {how}")


Line = list[str | tuple[str, str]]


def _head(session: str, seen: Overview) -> Iterator[Line]:
    state = seen.state
    waits = _waits(seen)
    yield [(session, "bold"), f"  {state.status}", f" ({printable(waits)})" if waits else ""]
    if state.key is not None:
        yield [("key     ", "dim"), printable(state.key)]
    if state.labels:
        pairs = (f"{name}={value}" for name, value in sorted(state.labels.items()))
        yield [("labels  ", "dim"), printable(" ".join(pairs))]
    if origin := _origin(state.lineage):
        yield [("from    ", "dim"), printable(origin)]
    yield [("time    ", "dim"), _time(state.first_ts, state.last_ts)]
    yield [("log     ", "dim"), _size(seen)]
    yield [("work    ", "dim"), _work(seen)]
    yield [("tokens  ", "dim"), _tokens(state.usage)]


def _waits(seen: Overview) -> str:
    state = seen.state
    if state.reason and state.status != "running":
        return stand_in.readable(state.reason)
    return "" if state.status != "running" else f"next: {type(state.next).__name__}"


def _origin(lineage: Lineage) -> str:
    if (fork := lineage.forked_from) is not None:
        return f"a fork of {fork.session} at seq {fork.seq}"
    if (source := lineage.imported) is not None:
        return f"{source.format} {source.path or source.id or ''}"
    if (parent := lineage.parent) is not None:
        return f"a call of {parent.session}"
    return ""


def _time(first: str | None, last: str | None) -> str:
    try:
        passed = datetime.fromisoformat(last or "") - datetime.fromisoformat(first or "")
    except (ValueError, TypeError):
        return printable(f"{first} to {last}")
    return f"{moment(first)} to {moment(last)} ({seconds(passed.total_seconds())})"


def _size(seen: Overview) -> str:
    writers = plural(len(seen.state.writers), "writer")
    version = printable(seen.state.harness_version or "")
    return ", ".join(part for part in (plural(seen.state.seq, "event"), writers, version) if part)


def _work(seen: Overview) -> str:
    said = seen.state.counts.get("user_message", 0)
    calls = sum(tool.calls for tool in seen.tools.values())
    parts = [plural(seen.turns, "turn"), plural(said, "user message"), plural(calls, "tool call")]
    if seen.side_calls:
        parts.append(plural(seen.side_calls, "side call"))
    if seen.state.model:
        parts.append(printable(seen.state.model))
    return ", ".join(parts)


def _tokens(used: Tokens) -> str:
    text = f"{number(used.input_tokens)} in, {number(used.output_tokens)} out"
    if used.cache_read_tokens or used.cache_write_tokens:
        read, written = number(used.cache_read_tokens), number(used.cache_write_tokens)
        text += f", {read} read from the cache, {written} written to it"
    return text if used.dollars is None else f"{text}, {dollars(used.dollars)}"


def _tools(seen: Overview) -> list[list[Cell]]:
    return [
        [
            printable(name),
            *map(number, (tool.calls, tool.ok, tool.error, tool.unknown, tool.cancelled)),
            number(tool.open),
            seconds(tool.seconds),
        ]
        for name, tool in sorted(seen.tools.items(), key=lambda each: -each[1].calls)
    ]


def _oddities(seen: Look) -> Iterator[tuple[str, str]]:
    """What a person should look at, and what can be done about it."""
    if seen.damage is not None:
        yield printable(seen.damage), ""
    state = seen.overview.state
    for call in undecided(state):
        where = f"{printable(call.name)} at seq {call.seq}"
        asks = printable(call.question or "what became of it?")
        yield f"{where} waits for a person: {asks}", _resolve(seen.session, call)
    for call in in_flight(state):
        yield f"{printable(call.name)} at seq {call.seq} has no result yet", ""
    if left := abandoned(seen.overview):
        yield f"{plural(left, 'call')} without a result", ""
    yield from _orphans(seen.overview)
    yield from _strays(seen.strays)
    yield from _troubles(seen.overview)


def _resolve(session: str, call: CallState) -> str:
    about = "" if call.announced_by is None else f" --announced-by {call.announced_by}"
    name = quote(printable(call.call_id))
    return f"flightlog resolve {session} {name}{about} --ruling result|rerun|fail --reason ..."


def _orphans(seen: Overview) -> Iterator[tuple[str, str]]:
    if seen.orphan_count:
        places = ", ".join(map(str, seen.orphans[:TOLD]))
        yield f"{plural(seen.orphan_count, 'result')} without an open call, at seq {places}", ""


def _strays(strays: tuple[Stray, ...]) -> Iterator[tuple[str, str]]:
    if strays:
        places = ", ".join(f"{each.sequence} ({each.why})" for each in strays[:TOLD])
        what = f"{plural(len(strays), 'message')} on its subjects that are no events of it"
        yield f"{what}: stream sequence {places}", ""


def _troubles(seen: Overview) -> Iterator[tuple[str, str]]:
    told = seen.troubles[-TOLD:]
    if earlier := seen.trouble_count - len(told):
        yield f"{plural(earlier, 'earlier failure')}", ""
    for trouble in told:
        yield f"{printable(trouble.what)} at seq {trouble.seq}", ""


def _document(seen: Look) -> dict[str, Any]:
    state, whole = seen.overview.state, seen.overview
    return {
        "session": seen.session,
        "key": state.key,
        "status": state.status,
        "reason": state.reason,
        "next": type(state.next).__name__,
        "labels": state.labels,
        "lineage": fields(state.lineage),
        "harness_version": state.harness_version,
        "model": state.model,
        "seq": state.seq,
        "digest": state.digest,
        "first_ts": state.first_ts,
        "last_ts": state.last_ts,
        "writers": state.writers,
        "turns": whole.turns,
        "side_calls": whole.side_calls,
        "counts": state.counts,
        "usage": fields(state.usage),
        "tools": {name: {**fields(tool), "open": tool.open} for name, tool in whole.tools.items()},
        "undecided": [_call(call) for call in undecided(state)],
        "in_flight": [_call(call) for call in in_flight(state)],
        "calls_without_result": abandoned(whole),
        "results_without_call": {"count": whole.orphan_count, "first": whole.orphans},
        "strays": [fields(stray) for stray in seen.strays],
        "failures": {"count": whole.trouble_count, "last": [fields(t) for t in whole.troubles]},
        "damage": seen.damage,
    }


def _call(call: CallState) -> dict[str, Any]:
    return {
        "name": call.name,
        "call_id": call.call_id,
        "announced_by": call.announced_by,
        "seq": call.seq,
        "attempt": call.attempt,
        "question": call.question,
    }
