"""The first reading of a Claude Code transcript: who it is, and which lines are its conversation.

Claude Code writes a tree: a person may go back and ask again, sub-agents were written inline, a
resumed session may repeat its own history. The survey gives each record a lane, so that the
second reading can map line by line.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from flightlog_recorder.importer.source import Record, plain

Lane = Literal["main", "side", "rewound", "repeat"]

TALK = ("user", "assistant")
LINKED = (*TALK, "system", "attachment", "progress")  # types that hang in the tree by uuid
SAID = ("subtype", "content", "data", "error", "compactMetadata", "hookInfos", "durationMs")


class Node(msgspec.Struct, frozen=True):
    """A record as a place in the tree."""

    index: int
    parent: str | None
    kind: str
    prompt: bool
    minor: bool


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What the first reading found; records are named by their index in the file."""

    source_id: str
    labels: dict[str, str]
    version: str
    types: dict[str, int]
    subagent: bool
    repeats: frozenset[int]
    changed: frozenset[int]
    rewound: frozenset[int]
    side: frozenset[int]
    calls: frozenset[str]
    summarised: frozenset[str]

    def lane(self, index: int) -> Lane:
        """Where a record belongs: the conversation as it stands, or beside it."""
        if index in self.repeats:
            return "repeat"
        if index in self.rewound:
            return "rewound"
        return "side" if index in self.side else "main"


def survey(path: Path, records: Iterable[Record]) -> Survey:
    """Read every record once; keeps a few dozen bytes of each."""
    found = _Found()
    for record in records:
        found.take(record)
    subagent = found.talk > 0 and found.side_talk == found.talk
    retracted = {found.nodes[uuid].index for uuid in found.retracted if uuid in found.nodes}
    return Survey(
        source_id=_source_id(path, found, subagent=subagent),
        labels=_labels(found.seen),
        version=_last(found.seen["version"]) or "",
        types=dict(found.types),
        subagent=subagent,
        repeats=frozenset(found.repeats),
        changed=frozenset(found.changed),
        rewound=frozenset(rewound(found.tree()) | retracted),
        side=frozenset() if subagent else frozenset(found.side),
        calls=frozenset(found.calls),
        summarised=frozenset(found.summarised),
    )


def rewound(nodes: dict[str, Node]) -> set[int]:
    """Name the records of branches that were left: those below the losers of each real fork.

    A real fork is one parent with several prompts. Parallel tool calls branch the tree too, but
    their children are results. The prompt on the current conversation wins, else the latest.
    """
    children: dict[str | None, list[str]] = defaultdict(list)
    for uuid, node in nodes.items():
        children[node.parent].append(uuid)
    current = _current(nodes, children)
    left: set[int] = set()
    for parent, uuids in children.items():
        prompts = [uuid for uuid in uuids if nodes[uuid].prompt]
        if parent is None or len(prompts) < 2:
            continue
        winner = next((uuid for uuid in prompts if uuid in current), prompts[-1])
        for uuid in prompts:
            if uuid != winner:
                left |= _below(uuid, nodes, children)
    return left


def _current(nodes: dict[str, Node], children: dict[str | None, list[str]]) -> set[str]:
    tips = {_talk_above(uuid, nodes) for uuid in nodes if uuid not in children}
    ranked = sorted(
        (tip for tip in tips if tip), key=lambda tip: (not nodes[tip].minor, nodes[tip].index)
    )
    chain: set[str] = set()
    at: str | None = ranked[-1] if ranked else None
    while at in nodes and at not in chain:
        chain.add(at)
        at = nodes[at].parent
    return chain


def _talk_above(uuid: str, nodes: dict[str, Node]) -> str | None:
    at: str | None = uuid
    passed: set[str] = set()
    while at in nodes and at not in passed:
        if nodes[at].kind in TALK:
            return at
        passed.add(at)
        at = nodes[at].parent
    return None


def _below(top: str, nodes: dict[str, Node], children: dict[str | None, list[str]]) -> set[int]:
    left: set[int] = set()
    waiting = [top]
    while waiting:
        uuid = waiting.pop()
        if nodes[uuid].index not in left:
            left.add(nodes[uuid].index)
            waiting += children.get(uuid, [])
    return left


class _Found:
    """What has been seen so far."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.prints: dict[str, bytes] = {}
        self.types: Counter[str] = Counter()
        self.seen: dict[str, dict[str, None]] = defaultdict(dict)
        self.repeats: set[int] = set()
        self.changed: set[int] = set()
        self.ambiguous: set[str] = set()
        self.side: set[int] = set()
        self.calls: set[str] = set()
        self.summarised: set[str] = set()
        self.retracted: set[str] = set()
        self.first_session = ""
        self.talk = self.side_talk = 0

    def take(self, record: Record) -> None:
        fields = record.fields
        self.types[str(fields.get("type"))] += 1
        for name in ("sessionId", "agentId", "cwd", "gitBranch", "version"):
            if value := plain(fields.get(name)):
                self.seen[name].pop(value, None)
                self.seen[name][value] = None
        self.first_session = self.first_session or next(iter(self.seen["sessionId"]), "")
        if fields.get("isSidechain") is True:
            self.side.add(record.index)
        if fields.get("type") in TALK:
            self.talk += 1
            self.side_talk += fields.get("isSidechain") is True
            self.calls.update(_call_ids(fields))
        if is_summary(fields) and isinstance(parent := fields.get("parentUuid"), str):
            self.summarised.add(parent)
        for name in ("retractedMessageUuids", "supersedesUuids"):
            if isinstance(uuids := fields.get(name), list):
                self.retracted.update(uuid for uuid in uuids if isinstance(uuid, str))
        if isinstance(uuid := fields.get("uuid"), str) and fields.get("type") in LINKED:
            self._place(uuid, record)

    def tree(self) -> dict[str, Node]:
        return {uuid: node for uuid, node in self.nodes.items() if uuid not in self.ambiguous}

    def _place(self, uuid: str, record: Record) -> None:
        print_ = _fingerprint(record.fields)
        if uuid not in self.nodes:
            self.nodes[uuid], self.prints[uuid] = _node(record), print_
        elif self.prints[uuid] == print_:
            self.repeats.add(record.index)
        else:
            self.ambiguous.add(uuid)
            self.changed.add(record.index)


def is_summary(fields: dict[str, Any]) -> bool:
    """Whether a record is the summary that a compaction put in the place of the conversation."""
    if fields.get("type") == "summary":
        return isinstance(fields.get("message"), dict)
    return fields.get("type") == "user" and fields.get("isCompactSummary") is True


def has_results(fields: dict[str, Any]) -> bool:
    """Whether a user record carries tool results: then nobody typed it."""
    return any(block.get("type") == "tool_result" for block in _blocks(fields))


def _node(record: Record) -> Node:
    fields = record.fields
    minor = any(fields.get(name) for name in ("isSidechain", "teamName", "isMeta"))
    typed = fields.get("type") == "user" and not has_results(fields) and not is_summary(fields)
    parent = fields.get("parentUuid")
    return Node(
        index=record.index,
        parent=parent if isinstance(parent, str) else None,
        kind=str(fields.get("type")),
        prompt=typed and not minor,
        minor=minor,
    )


def _fingerprint(fields: dict[str, Any]) -> bytes:
    """Copies of one record differ in session, folder and version, not in what they say."""
    message = fields.get("message")
    said = message.get("content") if isinstance(message, dict) else fields.get("attachment")
    if said is None:
        said = {name: fields.get(name) for name in SAID}
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=16).digest()


def _blocks(fields: dict[str, Any]) -> list[dict[str, Any]]:
    message = fields.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict)]


def _call_ids(fields: dict[str, Any]) -> list[str]:
    uses = [block for block in _blocks(fields) if block.get("type") == "tool_use"]
    return [block["id"] for block in uses if isinstance(block.get("id"), str)]


def _source_id(path: Path, found: _Found, *, subagent: bool) -> str:
    sessions, stem = list(found.seen["sessionId"]), path.stem
    agent = _last(found.seen["agentId"])
    # the first one, since a grown file must keep its name
    session = stem if stem in sessions or not sessions else found.first_session
    own = f"agent-{agent}"
    return f"{session}/{own}" if subagent and agent and session != own else session


def _labels(seen: dict[str, dict[str, None]]) -> dict[str, str]:
    labels = {"source": "claude-code"}
    for name, label in (("cwd", "cwd"), ("gitBranch", "branch")):
        if value := _last(seen[name]):
            labels[label] = value
    return labels


def _last(values: dict[str, None]) -> str | None:
    return next(reversed(values), None)
