"""The first reading of a Codex rollout: who it is, and what its lines say twice."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from flightlog_recorder.importer.codex_items import CALLS, Item, call_id, is_codex, item_of, texts
from flightlog_recorder.importer.source import Record, plain


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What the first reading found; records are named by their index in the file.

    `said` are the digests of all texts that response items hold.
    """

    source_id: str
    labels: dict[str, str]
    version: str
    types: dict[str, int]
    known: bool
    repeats: frozenset[int]
    changed: frozenset[int]
    calls: frozenset[str]
    said: frozenset[bytes]


def survey(path: Path, records: Iterable[Record]) -> Survey:
    """Read every record once; keeps a few dozen bytes of each."""
    found = _Found()
    for record in records:
        found.take(item_of(record))
    return Survey(
        source_id=plain(found.meta.get("id")) or path.name.split(".jsonl")[0],
        labels=_labels(found.meta),
        version=plain(found.meta.get("cli_version")) or "",
        types=dict(found.types),
        known=found.known,
        repeats=frozenset(found.repeats),
        changed=frozenset(found.changed),
        calls=frozenset(found.calls),
        said=frozenset(found.said),
    )


def digest(text: str) -> bytes:
    """A text's name in the survey."""
    return hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _Found:
    """What has been seen so far; the first session_meta is the file's own, others are copies."""

    def __init__(self) -> None:
        self.meta: dict[str, Any] = {}
        self.types: Counter[str] = Counter()
        self.known = False
        self.calls: set[str] = set()
        self.said: set[bytes] = set()
        self.repeats: set[int] = set()
        self.changed: set[int] = set()
        self._prints: dict[tuple[str, str], bytes] = {}

    def take(self, item: Item) -> None:
        self.types[item.name or str(item.record.fields.get("type"))] += 1
        self.known = self.known or is_codex(item)
        if item.envelope == "session_meta":
            self.meta = self.meta or item.body
        if item.envelope != "response_item":
            return
        if item.kind in CALLS and (named := plain(call_id(item))):
            self.calls.add(named)
        for name in ("content", "summary"):
            self._hear(texts(item.body.get(name)))
        self._place(item)

    def _hear(self, said: list[str]) -> None:
        self.said.update(map(digest, said))
        if len(said) > 1:
            self.said.update((digest("\n".join(said)), digest("".join(said))))

    def _place(self, item: Item) -> None:
        """An item that the provider named comes again when Codex copies its history."""
        if not (own := plain(item.body.get("id"))):
            return
        key = (item.kind, own)
        raw = json.dumps(item.body, sort_keys=True).encode()
        print_ = hashlib.blake2b(raw, digest_size=16).digest()
        if key not in self._prints:
            self._prints[key] = print_
        elif self._prints[key] == print_:
            self.repeats.add(item.record.index)
        else:
            self.changed.add(item.record.index)


def _labels(meta: dict[str, Any]) -> dict[str, str]:
    git = meta.get("git")
    branch = git.get("branch") if isinstance(git, dict) else None
    found = {
        "cwd": meta.get("cwd"),
        "branch": branch,
        "forked_from": meta.get("forked_from_id"),
        "parent": meta.get("parent_thread_id"),
    }
    labels = {name: text for name, value in found.items() if (text := plain(value))}
    return {"source": "codex", **labels}
