"""A session's family, from the catalog: whole, bounded, and a tree whatever the rows say."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from flightlog import Log, connect
from flightlog.cache.catalog import Row
from flightlog_recorder.cli import lineage
from flightlog_recorder.embedded import Servers
from flightlog_recorder.inspect import family
from flightlog_recorder.inspect.family import Family, Relative
from tests.recorder.command import flightlog
from tests.recorder.recorded import project, talk
from tests.scripted import TENANT, Model, says

HOSTILE = "\x1b[31m\u202e\n"


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


async def put(log: Log, session: str, **lineage: Any) -> None:
    assert log.store is not None
    await log.store.save_row(Row(tenant=TENANT, session=session, read_to=1, lineage=lineage))


def fork(source: str, seq: int = 3) -> dict[str, Any]:
    return {"forked_from": {"session": source, "seq": seq}}


def child(source: str) -> dict[str, Any]:
    return {"parent": {"session": source, "call_id": "t1", "announced_by": 4}}


def tree(found: Family) -> list[str]:
    """The lines as they are read, without style."""
    return [
        "".join(part if isinstance(part, str) else part[0] for part in line)
        for line in lineage.lines(found)
    ]


async def test_the_tree_holds_ancestors_forks_children_and_imports(log: Log) -> None:
    await put(log, "root", imported={"format": "codex", "path": "rollout.jsonl"})
    await put(log, "fork", **fork("root"), imported={"format": "codex"})
    await put(log, "aunt", **child("root"))
    await put(log, "leaf", **child("fork"))
    await put(log, "stranger")
    found = await family.of(log, "fork")
    assert tree(found) == [
        "root  imported from codex rollout.jsonl  new",
        "├─ fork  forked at seq 3  new",
        "│  └─ leaf  called at seq 4 by t1  new",
        "└─ aunt  called at seq 4 by t1  new",
    ]
    assert {each.session for each in (await family.of(log, "leaf")).members} == {
        each.session for each in found.members
    }


async def test_a_parent_that_the_catalog_lost_is_still_the_root(log: Log) -> None:
    await put(log, "fork", **fork("purged"))
    assert tree(await family.of(log, "fork")) == [
        "purged  not in the catalog",
        "└─ fork  forked at seq 3  new",
    ]


async def test_a_circle_is_told_and_drawn_once(log: Log) -> None:
    await put(log, "a", **fork("c"))
    await put(log, "b", **fork("a"))
    await put(log, "c", **child("b"))
    await put(log, "self", **fork("self"))
    found = await family.of(log, "b")
    assert sorted(each.session for each in found.members) == ["a", "b", "c"]
    assert len(tree(found)) == 3
    assert "a circle" in (found.why or "")
    assert tree(await family.of(log, "self"))[0].startswith("self")


async def test_many_children_and_ancestors_are_bounded_with_a_word(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "MOST", 10)
    monkeypatch.setattr(family, "DEEPEST", 5)
    for number in range(20):
        await put(log, f"c{number}", **child("root"))
        await put(log, f"f{number}", **fork(f"f{number - 1}"))
    wide, deep = await family.of(log, "root"), await family.of(log, "f19")
    assert (len(tree(wide)), wide.why) == (10, "10 are told; there are more")
    assert (len(tree(deep)), deep.why) == (5, "5 ancestors are told; there are more")


def test_hostile_names_move_no_cursor() -> None:
    member = Relative(
        session="s",
        key=HOSTILE,
        labels={HOSTILE: HOSTILE},
        how="import",
        by=HOSTILE,
        last_ts=HOSTILE,
    )
    [line] = tree(Family("s", [member]))
    assert line.isprintable()


@pytest.mark.timeout(60)  # every command is a process of its own
async def test_show_draws_the_tree_of_a_fork(servers: Servers, log: Log) -> None:
    source = await talk(log, key="source")
    made = await log.fork(source, at=4, labels={"try": "2"})
    for each in (source, made):
        await project(log, each)
    command = flightlog(servers)
    first, second = (await command("show", "source", "--tree")).out.splitlines()
    assert first.startswith(source)
    assert second.startswith(f"└─ {made}  forked at seq 4  ")
    assert second.endswith("try=2")
    told = (await command("show", made, "--tree", "--json")).json
    assert [each["session"] for each in told["members"]] == [source, made]


@pytest.mark.timeout(60)  # every command is a process of its own
async def test_the_tokens_of_a_tree_add_up_to_what_was_used(servers: Servers, log: Log) -> None:
    source = await talk(log, key="source")
    made = await log.fork(source, at=4)
    again = await log.fork(made)
    model = Model(says("on"))
    async with log.session(id=again) as session:
        await session.user_message("go on")
        await session.model_call({"model": "m", "messages": [{}]}, call=model)
    for each in (source, made, again):
        await project(log, each)
    listed = (await flightlog(servers)("ls", "--json")).json
    rows = {row["session"]: sum(row.get("usage", {}).values()) for row in listed["sessions"]}
    assert rows == {source: 30, made: 0, again: 15}
    assert (await log.usage(again)).input_tokens == 10
