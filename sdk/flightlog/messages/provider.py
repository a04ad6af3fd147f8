"""What the module of a provider offers: how its messages are read, and written."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Raw, Struct

from flightlog.messages.segment import Entry
from flightlog.messages.turn import Turn

MOST_ID = 40  # characters of a call id: OpenAI refuses longer ones
MOST_NAME = 64  # characters of a tool's name: both providers' limit
_FITS = re.compile(r"[A-Za-z0-9_-]+")


class Announced(Struct, frozen=True):
    """A call that a message asks the client to run; `input` is a value, or `Raw`."""

    call_id: str
    name: str
    input: Any


class Facts(Struct, frozen=True):
    """The usage that a message reports (null without one) and its stop reason."""

    usage: Raw
    stop: str | None


class Reply(Struct, frozen=True):
    """What of a message decides how the loop goes on."""

    calls: tuple[Announced, ...] = ()
    stop: str | None = None


class Shown(Struct, frozen=True, gc=False):
    """An entry as messages: the calls they leave open, and those whose results they are.

    The messages are new values, and in each is its `role`. `words` says that they hold text alone.
    """

    messages: tuple[dict[str, Any], ...] = ()
    asks: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    words: bool = False


class Provider(Protocol):
    """A provider's format. Its functions are pure and total over whatever a log may hold.

    `VIEW` names the rules of `native`, `write`, `mended` and `opening`: a request that is stored by
    reference names those that it counts on, so a change of what they write is a new view.
    """

    NAME: str
    VIEW: str
    LEADS: frozenset[str]  # roles of the messages at a request's head that are no conversation

    def reply(self, message: Raw) -> Reply:
        """The calls of a response that the client must run, and why the model stopped."""
        ...

    def read_response(self, message: Any) -> Facts:
        """What a response, given as a value, says beside the message."""
        ...

    def native(self, entry: Entry) -> Shown:
        """What a person said, results, and this provider's own messages."""
        ...

    def answer(self, message: Any) -> Shown:
        """This provider's own response, given as a value that holds no marks; it may be kept."""
        ...

    def read(self, message: Raw) -> Turn | None:
        """What this provider's own message says; None for one that says nothing."""
        ...

    def write(self, said: Turn) -> Shown:
        """Another provider's message; what has no form here is left out."""
        ...

    def mended(self, lines: Sequence[bytes], due: Sequence[str]) -> list[bytes]:
        """The messages with exactly the results that are due, at their head."""
        ...

    def opening(self, first: bytes) -> list[bytes]:
        """What must stand before a first message."""
        ...


def unique(ids: Sequence[str]) -> list[str]:
    """The ids, each repeat with the first number behind it that makes it new."""
    if len(set(ids)) == len(ids):
        return list(ids)
    taken, found = set(ids), list[str]()
    for at, call_id in enumerate(ids):
        number, new = 2, call_id
        while new in (taken if call_id in ids[:at] else ()):
            new, number = f"{call_id}-{number}", number + 1
        taken.add(new)
        found.append(new)
    return found


def is_name(text: object) -> bool:
    """Whether a call may have it as its id or as its tool's name."""
    return isinstance(text, str) and text != ""


def fitting(name: str, *, most: int) -> str:
    """The name, or one in its stead that every provider takes; always the same one."""
    if len(name) <= most and _FITS.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)[: most - 13]}_{digest}"
