"""What a user is meant to be: a role, as told or by its name, and what that needs. Pure."""

import re

from msgspec import Struct
from msgspec.structs import replace

from flightlog.wire import subject as names
from flightlog_recorder.access import role as roles
from flightlog_recorder.access.accounts import SERVICES
from flightlog_recorder.access.role import EVERY_TENANT, Role, Scope
from flightlog_recorder.doctor.rights import Duty

_SUBSCRIBER = re.compile(r"(?P<tenant>.+)-subscriber-(?P<name>.+)")
_NAMED = re.compile(r"(?P<owner>.+)-(?P<role>harness|projector|recorder|operator|admin)")


class Post(Struct, frozen=True):
    """A user's role, the tenant it works for, and the name that it subscribes under."""

    role: Role
    tenant: str
    subscription: str = ""


def post(user: str) -> Post | None:
    """The post of a user that is named as `flightlog provision --print-accounts` names them."""
    if found := _SUBSCRIBER.fullmatch(user):
        return Post("subscriber", found["tenant"], found["name"])
    if found := _NAMED.fullmatch(user):
        return next(Post(role, found["owner"]) for role in roles.ROLES if role == found["role"])
    return None


def duty(post: Post, *, inbox: str, streams: int, prefix: str = names.PREFIX) -> Duty:
    """What the post needs; `inbox` is where the user's answers arrive."""
    tenant = EVERY_TENANT if post.role in SERVICES else post.tenant
    scope = Scope("", tenant, post.subscription, streams, prefix)
    needs = roles.permissions(post.role, scope)
    # Who names no place for his answers needs that of everybody, which is too much.
    answers = "_INBOX.*.>" if inbox == "_INBOX" else f"{inbox}.>"
    own = f"{roles.inbox_prefix('')}.>"
    heard = tuple(answers if each == own else each for each in needs.subscribe)
    printing = f"flightlog --tenant {post.tenant} provision --print-accounts --streams {streams}"
    printing += f" --subscriber {post.subscription}" * bool(post.subscription)
    return Duty(
        post.role, replace(needs, subscribe=heard), f"{printing}; then: nats-server --signal reload"
    )
