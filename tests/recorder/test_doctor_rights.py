"""What credentials may do, by the server's own word: right, too wide, too narrow, each enforced."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from flightlog import NotPermitted
from flightlog.bus.access import NatsAccess
from flightlog.bus.nats_bus import connect_bare
from flightlog_recorder.access import accounts
from flightlog_recorder.access.accounts import Account, User
from flightlog_recorder.access.role import OWN_PERMISSIONS, Permissions, Role
from flightlog_recorder.doctor import doctor, rights
from flightlog_recorder.doctor.duty import Post
from flightlog_recorder.doctor.finding import Finding
from flightlog_recorder.doctor.gather import Place
from tests import roled as roles
from tests.conftest import MakeNats
from tests.roled import PASSWORD, Roled

FLEET = accounts.of_tenants("fleet", ["acme"], subscribers=["mailer"])
ROLES: tuple[Role, ...] = ("harness", "subscriber", "projector", "recorder", "operator", "admin")
PURGE = "$JS.API.STREAM.PURGE.FLIGHTLOG_0"


class Altered(Account, frozen=True):
    """An account in which one user's permissions were changed by hand."""

    whose: Role = "harness"
    added: Permissions = Permissions((), ())
    taken: frozenset[str] = frozenset()

    def permissions(self, user: User) -> Permissions:
        found = super().permissions(user)
        if user.role != self.whose:
            return found
        return Permissions(
            tuple(each for each in found.publish if each not in self.taken) + self.added.publish,
            tuple(each for each in found.subscribe if each not in self.taken)
            + self.added.subscribe,
            tuple(each for each in found.deny if each not in self.taken) + self.added.deny,
        )


def altered(
    whose: Role, added: Permissions | None = None, taken: frozenset[str] = frozenset()
) -> Altered:
    return Altered(**asdict(FLEET), whose=whose, added=added or Permissions((), ()), taken=taken)


async def permissions(roled: Roled, user: str, post: Post | None = None) -> list[Finding]:
    """What is found about a user's permissions in NATS."""
    found = await doctor.examine(Place(NatsAccess(url=roled.url(user))), post=post)
    return [each for each in found if each.check == rights.CHECK]


@pytest.mark.parametrize("role", ROLES)
async def test_a_user_as_it_was_provisioned_is_told_its_role_by_its_name(
    make_nats: MakeNats, role: Role
) -> None:
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams()
    [found] = await permissions(roled, roles.user(FLEET, role).name)
    assert (found.grade, found.what) == ("ok", f"what the role {role} needs, no more and no less")


@pytest.mark.parametrize(
    ("added", "told"),
    [
        (Permissions((PURGE,), ()), f"publish to {PURGE}"),
        (Permissions(("$JS.API.>",), ()), r"publish to $JS.API.>"),
        (Permissions(("flightlog.v1.inbox.acme.*.*",), ()), "publish to flightlog.v1.inbox.>"),
        (Permissions((), ("flightlog.v1.>",)), "subscribe to flightlog.v1.>"),
        (Permissions((), ("_INBOX.>",)), "subscribe to _INBOX.>"),
    ],
)
async def test_a_harness_that_may_do_more_is_too_wide(
    make_nats: MakeNats, added: Permissions, told: str
) -> None:
    taken = frozenset(["flightlog.v1.inbox.>"])  # else it is denied again
    account = altered("harness", added, taken if "inbox" in told else frozenset())
    roled = roles.start(make_nats, account)
    await roled.make_streams()
    [found] = await permissions(roled, "acme-harness")
    assert found.grade == "wrong"
    assert "too wide for the role harness" in found.what
    assert told in found.what
    assert "provision --print-accounts" in found.mend


async def test_what_the_server_says_of_a_user_is_what_it_does(make_nats: MakeNats) -> None:
    """The doctor believes `$SYS.REQ.USER.INFO`; here the same user tries it."""
    roled = roles.start(make_nats, altered("harness", Permissions((PURGE,), ())))
    await roled.make_streams()
    async with await connect_bare(roled.url("acme-harness")) as bus:
        assert "error" not in await bus.api("STREAM.PURGE.FLIGHTLOG_0")
        with pytest.raises(NotPermitted):
            await bus.api("STREAM.PURGE.FLIGHTLOG_inbox")


async def test_a_harness_that_may_do_less_is_too_narrow(make_nats: MakeNats) -> None:
    missing = "$JS.API.STREAM.MSG.GET.FLIGHTLOG_blobs"
    denied = Permissions((), (), ("flightlog.v1.7.acme.*.live",))
    roled = roles.start(make_nats, altered("harness", denied, frozenset([missing])))
    await roled.make_streams()
    [found] = await permissions(roled, "acme-harness")
    assert found.grade == "wrong"
    assert f"may not publish to flightlog.v1.*.acme.*.live, publish to {missing}" in found.what


async def test_permissions_for_fewer_streams_than_there_are_are_too_narrow(
    make_nats: MakeNats,
) -> None:
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams(streams=2)
    [found] = await permissions(roled, "acme-harness")
    assert "too narrow" in found.what
    assert "--streams 2" in found.mend


async def test_who_may_do_anything_is_wrong_only_where_a_role_is_meant(
    make_nats: MakeNats,
) -> None:
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams()
    [found] = await permissions(roled, "fleet-boss")
    assert found.grade == "warning"
    [found] = await permissions(roled, "fleet-boss", Post("projector", "acme"))
    assert (found.grade, found.what) == ("wrong", "this projector may do anything in its account")
    wide, narrow = await permissions(roled, "acme-harness", Post("operator", "acme"))
    assert "too wide for the role operator" in wide.what
    assert "too narrow for the role operator" in narrow.what


async def test_who_may_not_ask_for_his_permissions_is_unproven(make_nats: MakeNats) -> None:
    roled = roles.start(make_nats, altered("operator", taken=frozenset([OWN_PERMISSIONS])))
    await roled.make_streams()
    [found] = await permissions(roled, "fleet-operator")
    assert (found.grade, found.what[:9]) == ("warning", "unproven:")


async def test_a_harness_sees_what_it_may_and_the_rest_is_unproven(make_nats: MakeNats) -> None:
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams()
    found = await doctor.examine(Place(NatsAccess(url=roled.url("acme-harness"))))
    unproven = {each.check for each in found if each.what.startswith("unproven")}
    assert {"sync_always", "projector lag", "subscriber lag"} <= unproven
    assert {each.grade for each in found if each.check == "stream settings"} == {"ok"}


async def test_the_system_account_proves_sync_with_one_request_and_no_more(
    make_nats: MakeNats,
) -> None:
    roled = roles.start(make_nats, FLEET)
    await roled.make_streams()
    me = NatsAccess(url=roled.url("fleet-operator"))
    found = await doctor.examine(Place(me, NatsAccess(url=roled.url("doctor"))))
    proven = {each.check: each for each in found}
    assert proven["sync_always"].grade == proven["permissions"].grade == "ok"
    assert proven["server versions"].what.endswith("(each server)")
    wrong = NatsAccess(url=roled.url("doctor").replace(PASSWORD, "another"))
    [sync] = [e for e in await doctor.examine(Place(me, wrong)) if e.check == "sync_always"]
    assert (sync.grade, "refused the credentials" in sync.what) == ("warning", True)
    assert "another" not in sync.what
    mere = NatsAccess(url=roled.url("acme-harness"))
    [sync] = [e for e in await doctor.examine(Place(me, mere)) if e.check == "sync_always"]
    assert "refused to let us publish" in sync.what


async def test_other_servers_cannot_vouch_for_these(make_nats: MakeNats) -> None:
    ours, others = roles.start(make_nats, FLEET), roles.start(make_nats, FLEET)
    await ours.make_streams()
    me, stranger = (
        NatsAccess(url=at.url(user)) for at, user in ((ours, "fleet-operator"), (others, "doctor"))
    )
    found = await doctor.examine(Place(me, stranger))
    [sync] = [each for each in found if each.check == "sync_always"]
    assert (sync.grade, "does not answer" in sync.what) == ("warning", True)


async def test_a_user_of_the_system_account_that_may_do_anything_is_too_much(
    make_nats: MakeNats,
) -> None:
    user = f"{{ user: boss, password: {PASSWORD} }}"
    server = make_nats(
        access=f"accounts {{ SYS {{ users: [ {user} ] }}\n"
        f"A {{ jetstream: enabled, users: [ {user.replace('boss', 'ann')} ] }} }}\n"
        "system_account: SYS"
    )
    ann, boss = (
        NatsAccess(url=f"nats://{user}:{PASSWORD}@127.0.0.1:{server.port}")
        for user in ("ann", "boss")
    )
    found = await doctor.examine(Place(ann, boss))
    told = [each.what for each in found if each.check == "permissions"]
    assert any("user of the system account may do anything" in each for each in told)


TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
PATTERNS = st.builds(
    lambda tokens, tail: ".".join(tokens + tail), TOKENS, st.sampled_from([[], [">"]])
)
SUBJECTS = [
    ".".join(each) for size in range(1, 5) for each in itertools.product("abc", repeat=size)
]


def matched(pattern: str) -> set[str]:
    """The subjects that a pattern matches, of all that there are with few tokens."""
    tokens = [r"[^.]+" if token == "*" else token for token in pattern.split(".")]
    text = re.compile(r"\.".join(tokens).replace(r"\.>", r"\..+"))
    return {each for each in SUBJECTS if text.fullmatch(each)}


@given(PATTERNS, PATTERNS)
def test_one_pattern_covers_another_if_it_matches_all_that_the_other_does(
    one: str, other: str
) -> None:
    assert rights.covers(one, other) == (matched(other) <= matched(one))
    assert rights.overlaps(one, other) == bool(matched(one) & matched(other))
