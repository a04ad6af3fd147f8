"""What a user may do, by the server's own word, beside what its role needs. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from flightlog_recorder.access.role import Permissions
from flightlog_recorder.doctor.finding import Finding, Unproven, conclude, named

CHECK = "permissions"
_EVERYTHING = (">",)


class Rights(Struct, frozen=True):
    """What the server lets a user do; `may_answer` whoever asks him, on any subject."""

    publish: tuple[str, ...] = _EVERYTHING
    subscribe: tuple[str, ...] = _EVERYTHING
    no_publish: tuple[str, ...] = ()
    no_subscribe: tuple[str, ...] = ()
    may_answer: bool = False

    @property
    def is_boundless(self) -> bool:
        """Whether he may do anything that his account can."""
        return self == Rights()


def read(info: Mapping[str, Any]) -> Rights:
    """From what `$SYS.REQ.USER.INFO` answers. Where nothing is allowed by name, all is."""
    told = (info.get("data") or {}).get("permissions") or {}
    publish, subscribe = told.get("publish") or {}, told.get("subscribe") or {}
    return Rights(
        publish=tuple(publish.get("allow") or _EVERYTHING),
        subscribe=tuple(subscribe.get("allow") or _EVERYTHING),
        no_publish=tuple(publish.get("deny") or ()),
        no_subscribe=tuple(subscribe.get("deny") or ()),
        may_answer=bool(told.get("responses")),
    )


class Duty(Struct, frozen=True):
    """A user as it is meant to be: its role in words, its permissions, what prints them."""

    role: str
    needs: Permissions
    mend: str


def check(rights: Rights | Unproven, duty: Duty) -> list[Finding]:
    """Whether the user may do less or more than its role needs."""
    if isinstance(rights, Unproven):
        return [rights.finding(CHECK)]
    found: list[Finding] = []
    if wide := _too_wide(rights, duty.needs):
        text = f"too wide for the role {duty.role}: may also {named(wide)}"
        if rights.is_boundless:
            text = f"this {duty.role} may do anything in its account"
        found = [Finding(CHECK, "wrong", text, duty.mend)]
    if narrow := _too_narrow(rights, duty.needs):
        text = f"too narrow for the role {duty.role}: may not {named(narrow)}"
        found.append(Finding(CHECK, "wrong", text, duty.mend))
    return conclude(CHECK, found, f"what the role {duty.role} needs, no more and no less")


def _too_narrow(rights: Rights, needs: Permissions) -> list[str]:
    sides = (
        ("publish to", needs.publish, rights.publish, rights.no_publish),
        ("subscribe to", needs.subscribe, rights.subscribe, rights.no_subscribe),
    )
    return [
        f"{verb} {subject}"
        for verb, wanted, allowed, denied in sides
        for subject in wanted
        if not _covered(subject, allowed) or _hit(subject, denied, needs.deny)
    ]


def _hit(subject: str, denied: Iterable[str], meant: Sequence[str]) -> bool:
    """Whether something is denied of a subject that the role means to have."""
    return any(overlaps(each, subject) for each in denied if not _covered(each, meant))


def _too_wide(rights: Rights, needs: Permissions) -> list[str]:
    wide = [
        f"publish to {each}"
        for each in rights.publish
        if not (_covered(each, needs.publish) or _covered(each, rights.no_publish))
    ]
    wide += [
        f"publish to {each}"
        for each in needs.deny
        if not _covered(each, rights.no_publish)
        and any(overlaps(each, allowed) for allowed in rights.publish)
    ]
    wide += [
        f"subscribe to {each}"
        for each in rights.subscribe
        if not (_covered(each, needs.subscribe) or _covered(each, rights.no_subscribe))
    ]
    return wide + ["answer whoever asks"] * rights.may_answer


def _covered(subject: str, patterns: Iterable[str]) -> bool:
    return any(covers(pattern, subject) for pattern in patterns)


def covers(pattern: str, subject: str) -> bool:
    """Whether each subject that the second matches is matched by the first."""
    ours, theirs = _tokens(pattern), _tokens(subject)
    if ours[-1] == ">":
        return len(theirs) >= len(ours) and _each_covers(ours[:-1], theirs)
    return len(ours) == len(theirs) and _each_covers(ours, theirs)


def _each_covers(ours: list[str], theirs: list[str]) -> bool:
    """Token by token, as far as ours go."""
    return all(
        mine == its or (mine == "*" and its != ">") for mine, its in zip(ours, theirs, strict=False)
    )


def overlaps(one: str, other: str) -> bool:
    """Whether there is a subject that both match."""
    ours, theirs = _tokens(one), _tokens(other)
    for mine, its in zip(ours, theirs, strict=False):
        if ">" in (mine, its):
            return True
        if mine != its and "*" not in (mine, its):
            return False
    return len(ours) == len(theirs)


def _tokens(pattern: str) -> list[str]:
    """Without the queue that a subscription may name behind its subject."""
    return pattern.split(maxsplit=1)[0].split(".")
