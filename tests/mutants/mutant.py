"""The safeguards: where each stands in the source, what switches it off, and who must notice."""

from pathlib import Path

from msgspec import Struct

BUS, CHAIN, WRITER = "bus/nats_bus.py", "reading/chain.py", "writing/writer.py"
READING, SCRIPT = "reading/once.py", "cache/script.py"

ON_THE_WIRE = ("tests/contract/test_nats_bus.py", "tests/system/test_fencing.py")
IN_LIVES = ("tests/system/test_stateful.py",)
IN_READING = ("tests/sdk/test_chain.py", "tests/sdk/test_reader.py")
IN_WRITING = ("tests/sdk/test_writer.py", "tests/sdk/test_appender.py")
IN_REDIS = ("tests/sdk/test_store.py",)
IN_BASES = ("tests/sdk/test_seal.py", "tests/sdk/test_reader.py")


class Stale(Exception):
    """The source has changed: a mutant's text is not there, or more than once."""


class Mutant(Struct, frozen=True):
    """One safeguard: its text in a module of the SDK, what replaces it, and the tests to run."""

    safeguard: str
    module: str
    text: str
    instead: str
    suite: tuple[str, ...]

    def apply(self, tree: Path) -> None:
        """Switch it off in a copy of the tree. Raises `Stale`."""
        source = tree / "sdk" / "flightlog" / self.module
        found = source.read_text()
        if found.count(self.text) != 1:
            raise Stale(
                f"{self.safeguard}: {self.module} has {found.count(self.text)} x {self.text}"
            )
        source.write_text(found.replace(self.text, self.instead))

    def undo(self, tree: Path, whole: Path) -> None:
        """Put the module back as it is in the tree that was copied."""
        module = Path("sdk", "flightlog", self.module)
        (tree / module).write_bytes((whole / module).read_bytes())


def expectation(suite: tuple[str, ...], where: str) -> Mutant:
    """The header that fences a writer is not sent."""
    return Mutant(f"the expectation ({where})", BUS, "    if n == 0:\n", "    if n < 0:\n", suite)


MUTANTS = (
    expectation(ON_THE_WIRE, "on the wire"),
    expectation(IN_LIVES, "in random lives"),
    Mutant(
        "the chain check",
        CHAIN,
        "if event.seq != self.head.seq + 1 or event.prev != self.head.digest:",
        "if event.seq != self.head.seq + 1:",
        IN_READING,
    ),
    Mutant(
        "the writer-number rule",
        CHAIN,
        "if event.seq <= self.head.seq and number > beats:",
        "if event.seq <= self.head.seq and number > beats + 1_000:",
        IN_READING,
    ),
    Mutant(
        "the gap check",
        CHAIN,
        "self.gap = self.gap or self._gap(event)",
        "self.gap = None",
        IN_READING,
    ),
    Mutant(
        "the read-back (nothing is ours)",
        WRITER,
        "if message.body == self._sent[0].event.body:",
        "if not message.body:",
        IN_WRITING,
    ),
    Mutant(
        "the read-back (all is ours)",
        WRITER,
        "if message.body == self._sent[0].event.body:",
        "if message.body:",
        IN_WRITING,
    ),
    Mutant(
        "the compare-and-set of values",
        SCRIPT,
        "if not expected and now ~= ARGV[3] then return 0 end",
        "",
        IN_REDIS,
    ),
    Mutant(
        "the compare-and-set of snapshots",
        SCRIPT,
        "if now and string.sub(now, 1, #ARGV[2]) ~= ARGV[2] then return 0 end",
        "",
        IN_REDIS,
    ),
    Mutant(
        "the compare-and-set of rows",
        SCRIPT,
        "if (now and redis.sha1hex(now) or '') ~= ARGV[1] then return 0 end",
        "",
        IN_REDIS,
    ),
    Mutant(
        "the purged mark",
        SCRIPT,
        "if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end",
        "",
        IN_REDIS,
    ),
    Mutant(
        "the seal",
        READING,
        "return self._base_seen and self.seal is None",
        "return self._base_seen and self.seal is None and not self._base_seen",
        IN_BASES,
    ),
    Mutant(
        "what the seal says",
        READING,
        "if (count, digest) == (head.seq, head.digest):",
        "if (count, digest) == (head.seq, head.digest) or head.seq:",
        IN_BASES,
    ),
    Mutant(
        "the snapshot's own event",
        READING,
        "if message.sequence == self._anchor.sequence and found == self._anchor.digest:",
        "if message.sequence == self._anchor.sequence:",
        IN_READING,
    ),
)
