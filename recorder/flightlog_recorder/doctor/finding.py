"""A finding: one line about the deployment, how bad it is, and the command that mends it."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

Grade = Literal["ok", "warning", "wrong"]

EACH = "{each}"
_NAMED = 4  # things that one line names; the rest is counted


class Finding(Struct, frozen=True):
    """`check` is the line of the list that it belongs to; `mend` is empty where all is well."""

    check: str
    grade: Grade
    what: str
    mend: str = ""


class Unproven(Struct, frozen=True):
    """A fact that could not be had, why, and what has to be done to have it."""

    why: str
    mend: str
    is_wrong: bool = False

    def finding(self, check: str) -> Finding:
        """What is not proven must not look like all is well; it need not be wrong either."""
        if self.is_wrong:
            return Finding(check, "wrong", self.why, self.mend)
        return Finding(check, "warning", f"unproven: {self.why}", self.mend)


class Symptom(Struct, frozen=True):
    """What ails one stream, server or consumer; `EACH` in `mend` stands for its name."""

    of: str
    grade: Grade
    what: str
    mend: str


def merged(check: str, symptoms: Iterable[Symptom]) -> list[Finding]:
    """One finding for all that ail the same: what is wrong with eight streams is one line."""
    alike: dict[tuple[Grade, str, str], list[str]] = {}
    for each in symptoms:
        alike.setdefault((each.grade, each.what, each.mend), []).append(each.of)
    return [
        Finding(check, grade, f"{named(of)}: {what}", _addressed(mend, of))
        for (grade, what, mend), of in alike.items()
    ]


def _addressed(mend: str, of: Sequence[str]) -> str:
    if len(of) == 1 or EACH not in mend:
        return mend.replace(EACH, of[0])
    return f"for each of them: {mend.replace(EACH, 'NAME')}"


def conclude(check: str, problems: Sequence[Finding], fine: str) -> list[Finding]:
    """The problems, or, if there are none, that all is well."""
    return list(problems) or [Finding(check, "ok", fine)]


def named(names: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    found = list(names)
    rest = len(found) - _NAMED
    shown = ", ".join(found[:_NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def is_fine(found: Iterable[Finding], *, strict: bool) -> bool:
    """Whether nothing is wrong; if `strict`, whether nothing needs a look either."""
    return all(each.grade == "ok" or (each.grade == "warning" and not strict) for each in found)
