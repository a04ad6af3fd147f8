"""The tree of a session's family, as lines for a terminal."""

from collections.abc import Iterator

from flightlog import Log
from flightlog_recorder.cli.output import Usage, moment, note, number, printable, say, show_json
from flightlog_recorder.inspect import family
from flightlog_recorder.inspect.family import Family, Relative

Line = list[str | tuple[str, str]]


async def show_tree(log: Log, session: str, *, json: bool) -> None:
    """Print where the session comes from and what came of it."""
    if log.store is None:
        raise Usage(
            "--tree reads the catalog, which is in Redis: give --redis or FLIGHTLOG_REDIS_URL"
        )
    found = await family.of(log, session)
    if json:
        show_json(found)
        return
    for line in lines(found):
        say(*line)
    if found.why is not None:
        note(found.why)


def lines(found: Family) -> Iterator[Line]:
    """One line a member, below its origin."""
    below: dict[str | None, list[Relative]] = {}
    for member in found.members:
        below.setdefault(member.origin, []).append(member)
    waiting = [("", "", "", root) for root in below.get(None, [])]
    while waiting:
        before, branch, rest, member = waiting.pop()
        yield [(before + branch, "dim"), *_told(member, is_asked=member.session == found.session)]
        after, last = before + rest, below.get(member.session, [])[-1:]
        waiting += [
            (after, "└─ ", "   ", each) if [each] == last else (after, "├─ ", "│  ", each)
            for each in reversed(below.get(member.session, []))
        ]


def _told(member: Relative, *, is_asked: bool) -> Line:
    labels = " ".join(f"{name}={value}" for name, value in sorted(member.labels.items()))
    about = (
        _came(member),
        member.status or "not in the catalog",
        moment(member.last_ts),
        printable(member.key or ""),
        printable(labels),
    )
    style = "bold green" if is_asked else "bold"
    return [(printable(member.session), style), *(f"  {word}" for word in about if word)]


def _came(member: Relative) -> str:
    at = "" if member.seq is None else f" at seq {number(member.seq)}"
    by = printable(member.by or "")
    match member.how:
        case "fork":
            return f"forked{at}"
        case "child":
            return f"called{at} by {by}" if by else f"called{at}"
        case "import":
            return f"imported from {by}"
        case None:
            return ""
