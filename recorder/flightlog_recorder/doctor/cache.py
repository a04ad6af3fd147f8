"""Redis: what it does when it is full, and how full it is. Pure."""

from flightlog.cache.vitals import Vitals
from flightlog_recorder.doctor.finding import Finding, Grade, Unproven, conclude, named

POLICY, MEMORY, RIGHTS = "redis eviction", "redis memory", "redis permissions"
FULL, NEARLY_FULL = 0.95, 0.8  # of maxmemory
_RIGHT = "noeviction"


def check(found: list[Vitals] | Unproven) -> list[Finding]:
    """Eviction and memory of every server."""
    if isinstance(found, Unproven):
        return [found.finding(each) for each in (POLICY, MEMORY)]
    policies = [each for one in found if (each := _policy(one))]
    memory = [each for one in found if (each := _memory(one))]
    used = sum(each.used for each in found)
    limit = sum(each.limit for each in found)
    of = f" of {_mib(limit)}" if limit else ", no maxmemory is set"
    versions = named(sorted({each.version for each in found}))
    return [
        *conclude(POLICY, policies, f"{_RIGHT} ({versions})"),
        *conclude(MEMORY, memory, f"{_mib(used)} used{of}"),
    ]


def check_rights(excess: list[str] | Unproven) -> list[Finding]:
    """What the user may do that no role needs (`flightlog_recorder.access.rights`)."""
    if isinstance(excess, Unproven):
        return [excess.finding(RIGHTS)]
    text = f"this user of Redis may also do what no role needs: {named(excess)}"
    mend = "flightlog provision --tenant TENANT --output DIR writes an ACL, a user for each role"
    problems = [Finding(RIGHTS, "warning", text, mend)] if excess else []
    return conclude(RIGHTS, problems, "neither settings nor keys of others are open to this user")


def _policy(one: Vitals) -> Finding | None:
    mend = f"redis-cli CONFIG SET maxmemory-policy {_RIGHT}, and in its settings file"
    if not one.policy:
        text = f"Redis{_at(one)} does not tell its eviction policy"
        return Unproven(text, f"see that it is {_RIGHT} in the service's console").finding(POLICY)
    if one.policy == _RIGHT:
        return None
    grade: Grade = "warning" if one.policy.startswith("volatile") else "wrong"
    text = f"Redis{_at(one)} evicts keys ({one.policy}): rows and snapshots vanish unseen"
    return Finding(POLICY, grade, text, mend)


def _memory(one: Vitals) -> Finding | None:
    share = one.used / one.limit if one.limit else 0.0
    if share < NEARLY_FULL:
        return None
    grade: Grade = "wrong" if share >= FULL else "warning"
    text = f"Redis{_at(one)} uses {share:.0%} of its maxmemory; a full one stops the projector"
    return Finding(MEMORY, grade, text, f"redis-cli CONFIG SET maxmemory {2 * one.limit}")


def _at(one: Vitals) -> str:
    return f" at {one.where}" if one.where else ""


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
