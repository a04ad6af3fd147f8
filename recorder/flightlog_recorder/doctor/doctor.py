"""From facts to findings: every line of the list, in its order. Pure, but for `examine`."""

from collections.abc import Mapping

from flightlog.errors import LayoutRefused
from flightlog_recorder.doctor import (
    cache,
    catalog,
    clocks,
    consumers,
    duty,
    nodes,
    rights,
    streams,
)
from flightlog_recorder.doctor.duty import Post
from flightlog_recorder.doctor.finding import Finding, Unproven
from flightlog_recorder.doctor.gather import Facts, Place, gather

CHECKS = (
    nodes.VERSIONS,
    streams.REPLICAS,
    nodes.SYNC,
    streams.SETTINGS,
    streams.ROOM,
    rights.CHECK,
    nodes.PAYLOAD,
    cache.RIGHTS,
    cache.POLICY,
    cache.MEMORY,
    clocks.CHECK,
    consumers.LAG,
    consumers.SUBSCRIBERS,
    catalog.CHECK,
)


async def examine(place: Place, *, post: Post | None = None) -> list[Finding]:
    """Look at a deployment; nothing of it is changed. Raises `BusUnavailable`, `NotPermitted`.

    `post` is what the credentials are meant to be; without it their name says so.
    """
    try:
        facts = await gather(place)
    except LayoutRefused as exc:
        mend = "upgrade nats-server, one node at a time"
        return [Finding(nodes.VERSIONS, "wrong", str(exc), mend)]
    return judge(facts, post=post)


def judge(facts: Facts, *, post: Post | None = None) -> list[Finding]:
    """Every line: each check has at least one."""
    last = {
        str(info["config"]["name"]): int(info["state"]["last_seq"]) for info in facts.streams.logs
    }
    found = [
        *nodes.check(facts.nodes),
        *streams.check(facts.streams),
        *_permissions(facts, post),
        *cache.check(facts.cached.vitals),
        *cache.check_rights(facts.cached.excess),
        *clocks.check(_ahead(facts)),
        *consumers.check(facts.consumers, list(last)),
        *catalog.check(facts.cached.floors, last, facts.consumers),
    ]
    return sorted(found, key=lambda each: CHECKS.index(each.check))


def _ahead(facts: Facts) -> Mapping[str, float]:
    found = {f"NATS {node.name}": node.ahead for node in facts.nodes.told if node.ahead is not None}
    if not isinstance(facts.cached.vitals, Unproven):
        found |= {f"Redis {one.where}".strip(): one.ahead for one in facts.cached.vitals}
    return found


def _permissions(facts: Facts, told: Post | None) -> list[Finding]:
    found = _of_system(facts)
    post = told or duty.post(facts.user) or duty.post(facts.inbox.removeprefix("_INBOX."))
    if post is not None:
        wanted = duty.duty(
            post,
            inbox=facts.inbox,
            streams=len(facts.streams.logs) or 1,
            prefix=facts.streams.prefix,
        )
        return [*found, *rights.check(facts.rights, wanted)]
    return [*found, _unnamed(facts.rights)]


def _unnamed(found: rights.Rights | Unproven) -> Finding:
    mend = "say what they are meant to be: flightlog doctor --role operator"
    if isinstance(found, Unproven):
        return found.finding(rights.CHECK)
    if found.is_boundless:
        text = "these credentials may do anything in their account: right for one machine alone"
        return Finding(rights.CHECK, "warning", text, "flightlog provision --print-accounts")
    return Unproven("their name does not say which role these credentials are", mend).finding(
        rights.CHECK
    )


def _of_system(facts: Facts) -> list[Finding]:
    if facts.system_rights is None or not facts.system_rights.is_boundless:
        return []
    text = "the user of the system account may do anything there; the doctor needs one request"
    mend = "flightlog provision --print-accounts prints the user `doctor`"
    return [Finding(rights.CHECK, "warning", text, mend)]
