"""What a purge does next, from what is seen (DESIGN section 7). Pure, so a crash anywhere is the
same as a new look: whoever goes on, the command or the recorder, takes the step that is missing.
"""

from msgspec import Struct


class Seen(Struct, frozen=True):
    """A session as the stream's leader shows it.

    `live` and `base` are the stream sequences of their last messages, 0 for none; `held` says that
    the key still names the session; `digest` is that of the last event.
    """

    live: int = 0
    live_count: int = 0
    base: int = 0
    inbox: int = 0
    notices: int = 0
    blobs: int = 0
    letters: int = 0
    is_buried: bool = False
    is_held: bool = False
    digest: str | None = None


class ReleaseKey(Struct, frozen=True):
    """Remove the key's entry by compare-and-set: it then mints anew."""


class Bury(Struct, frozen=True):
    """Append the tombstone to `live`: from its ack on nobody writes the session any more."""

    expected: int
    digest: str | None


class Clear(Struct, frozen=True):
    """Delete the messages of one subject below a stream sequence."""

    place: str
    below: int


class Done(Struct, frozen=True):
    """Nothing is left but the tombstone."""


Step = ReleaseKey | Bury | Clear | Done


def next_step(seen: Seen) -> Step:
    """The next step. The key goes first, so that no one finds a grave under it."""
    if seen.is_held:
        return ReleaseKey()
    if not seen.is_buried:
        return Bury(seen.live, seen.digest)
    if seen.live_count > 1:
        return Clear("live", seen.live)
    beside = (("inbox", seen.inbox), ("notice", seen.notices), ("dead", seen.letters))
    for place, last in (("base", seen.base), ("blob", seen.blobs), *beside):
        if last:
            return Clear(place, last + 1)
    return Done()
