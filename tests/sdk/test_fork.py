"""Forks: a copy of the first events under a new id, all or nothing, and nothing shared after."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flightlog import (
    AwaitUser,
    Decide,
    Event,
    InvalidValue,
    KeyTaken,
    Log,
    LogCorrupt,
    NoSuchSession,
    RunTools,
    SessionPurged,
    connect,
)
from flightlog.bus.answer import Acked
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Outgoing
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.payload import OnResume
from flightlog.writing import keys, seal
from flightlog.writing.draft import Draft
from flightlog_recorder.purge import purge
from flightlog_recorder.purge.purge import Reason
from tests.handmade import chain
from tests.scripted import TENANT, Model, asks, chain_is_whole, stored, types


@pytest.fixture
async def log(nats_url: str) -> AsyncIterator[Log]:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        yield log


def bus_of(log: Log) -> NatsBus:
    assert isinstance(log.bus, NatsBus)
    return log.bus


async def talk(log: Log, *, key: str = "k", rerun: bool = True) -> str:
    """Two calls asked for, one of them run, and left."""
    policy: OnResume = "rerun" if rerun else "ask"
    model = Model(asks(("a", "add", {"x": 1}), ("b", "add", {"x": 2})))
    async with log.session(key=key) as session:
        await session.user_message("add")
        await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)
        assert isinstance(session.state.next, RunTools)
        first, second = session.state.next.calls
        await session.tool_call(first, run=lambda x: x, on_resume=policy)
        async with session.calling(second, on_resume=policy) as attempt:
            attempt.result(2)
        return session.id


def without_chain(event: Event) -> dict[str, object]:
    fields: dict[str, object] = msgspec.json.decode(event.body)
    return {name: value for name, value in fields.items() if name not in ("session_id", "prev")}


@pytest.mark.parametrize(
    "asked",
    [
        {"key": "\ud800"},
        {"key": "k" * 100_000},
        {"labels": {"a": "\ud800"}},
        {"labels": {"a" * 5_000: "b"}},
        {"labels": {"a": None}},
        {"at": "3"},
        {"at": 1.0},
        {"at": True},
    ],
)
async def test_what_no_session_may_be_called_and_no_seq_is_refused_before_anything_is_made(
    log: Log, asked: Any
) -> None:
    source = await talk(log)
    with pytest.raises(InvalidValue):
        await log.fork(source, **asked)
    assert await log.fork(source, key="j") != source


async def test_the_first_events_are_copied_and_chained_anew(log: Log) -> None:
    source = await talk(log)
    made = await log.fork(source, at=4, labels={"why": "a test"})
    assert made != source
    mine, copied = await stored(log, source), await stored(log, made)
    assert [without_chain(each) for each in copied[:4]] == [without_chain(e) for e in mine[:4]]
    assert {each.session_id for each in copied} == {made}
    assert chain_is_whole(copied)
    branch = copied[4]
    assert (branch.type, branch.seq, branch.parent_seq) == ("session_forked", 5, 4)
    assert branch.payload["session"] == source
    assert (branch.payload["seq"], branch.payload["digest"]) == (4, mine[3].digest)
    assert len(copied) == 5
    state = await log.state(made)
    assert (state.status, state.labels, state.key) == ("suspended", {"why": "a test"}, None)
    assert state.messages() == (await log.state(source, at=4)).messages()


async def test_without_a_point_all_events_are_copied(log: Log) -> None:
    source = await talk(log)
    length = len(await stored(log, source))
    assert len(await stored(log, await log.fork(source))) == length + 1


async def test_a_fork_at_zero_is_a_session_that_only_knows_where_it_comes_from(log: Log) -> None:
    made = await log.fork(await talk(log), at=0)
    assert await types(log, made) == ["session_forked"]
    async with log.session(id=made) as session:
        assert isinstance(session.state.next, AwaitUser)
        await session.user_message("hello")


async def test_calls_that_were_running_at_the_point_are_ruled_by_their_policies(log: Log) -> None:
    source = await talk(log)
    at = (await types(log, source)).index("tool_result")  # the first call runs, the second waits
    made = await log.fork(source, at=at)
    async with log.session(id=made) as session:
        assert isinstance(session.state.next, RunTools)
        assert [call.call_id for call in session.state.next.calls] == ["a", "b"]
        again = {call.call_id: call.attempt for call in session.state.next.calls}
        assert again == {"a": 2, "b": 1}
    asking = await talk(log, key="asks", rerun=False)
    async with log.session(id=await log.fork(asking, at=at)) as session:
        assert isinstance(session.state.next, RunTools)
        [call] = session.state.next.calls
        assert call.call_id == "b"
        await session.tool_call(call, run=lambda x: x)
        assert isinstance(session.state.next, Decide)


async def test_a_running_an_ended_and_a_forked_session_are_forked_alike(log: Log) -> None:
    async with log.session(key="running") as session:
        await session.user_message("one")
        running = await log.fork(session.id)
        await session.user_message("two")
        await session.end("completed")
        ended = await log.fork(session.id)
    again = await log.fork(ended)
    for each, said in ((running, 1), (ended, 2), (again, 2)):
        async with log.session(id=each) as fork:
            assert len(fork.state.messages()) == said
            await fork.user_message("more")
    assert len(await stored(log, session.id)) == 4


async def test_an_import_is_forked(log: Log) -> None:
    entry = await keys.claim(log.bus, TENANT, "import", made_by="import")
    drafts = [Draft("user_message", carry.pack({"content": f"{n}"})) for n in range(3)]
    await seal.write_base(log.bus, TENANT, entry.id, drafts)
    made = await log.fork(entry.id, at=2)
    assert [each["content"] for each in (await log.state(made)).messages()] == ["0", "1"]


async def test_an_event_that_is_not_there_a_session_that_is_none_and_a_purged_one_are_named(
    log: Log,
) -> None:
    source = await talk(log)
    for at in (-1, 99):
        with pytest.raises(InvalidValue, match=f"there is no event {at}"):
            await log.fork(source, at=at, key="free")
    with pytest.raises(NoSuchSession):
        await log.fork("sess_never")
    await purge(log, bus_of(log), source, reason=Reason(by="a test", why="a test"))
    with pytest.raises(SessionPurged):
        await log.fork(source, key="free")
    async with log.session(key="free"):
        pass


async def test_the_same_key_gives_the_same_fork_and_never_another_one(log: Log) -> None:
    source, other = await talk(log), await talk(log, key="other")
    made = await log.fork(source, at=3, key="mine")
    assert await log.fork(source, at=3, key="mine") == made
    assert await log.fork(source, key="mine") == made
    for session, at in ((source, 4), (other, 3)):
        with pytest.raises(KeyTaken):
            await log.fork(session, at=at, key="mine")
    with pytest.raises(KeyTaken):
        await log.fork(source, at=3, key="k")
    async with log.session(key="mine") as opened:
        assert opened.id == made
        assert opened.state.key == "mine"


async def test_a_resume_keeps_the_id_and_a_fork_mints_one(log: Log) -> None:
    source = await talk(log)
    async with log.session(key="k") as resumed:
        assert resumed.id == source
    made = [await log.fork(source, at=3) for _ in range(3)]
    assert len({source, *made}) == 4


async def test_many_that_fork_under_one_key_get_one_fork(log: Log, nats_url: str) -> None:
    source = await talk(log)
    async with connect(nats=nats_url, tenant=TENANT) as other:
        forks = [each.fork(source, at=5, key="one") for each in (log, other, log, other)]
        assert len(set(await asyncio.gather(*forks))) == 1


async def test_a_fork_that_died_half_way_is_not_seen_and_a_second_run_takes_over(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "STILL", 0.2)
    source = await talk(log)
    dead = await keys.claim(log.bus, TENANT, "mine", made_by="fork")
    subject = names.log_subject(TENANT, dead.id, "base")
    copy = chain(1, session=dead.id)[0]
    answer = await log.bus.append(subject, [Outgoing(copy.body, {})], expected=0, timeout=5)
    assert isinstance(answer, Acked)
    with pytest.raises(NoSuchSession):
        await log.state(dead.id)
    made = await log.fork(source, key="mine")
    assert made != dead.id
    assert (await seal.look(log.bus, TENANT, dead.id)).standing == "abandoned"
    assert (await log.state(made)).lineage.forked_from is not None


async def test_a_damaged_session_goes_on_as_a_fork_at_its_last_good_event(log: Log) -> None:
    source = names.mint()
    events = chain(6, session=source)
    subject, last = names.log_subject(TENANT, source, "live"), 0
    for each in events[:3] + events[4:]:
        answer = await log.bus.append(subject, [Outgoing(each.body, {})], expected=last, timeout=5)
        assert isinstance(answer, Acked)
        last = answer.sequence
    with pytest.raises(LogCorrupt, match="fork it at 3"):
        await log.fork(source)
    made = await log.fork(source, at=3)
    assert len(await stored(log, made)) == 4


class Tree:
    """Sessions that are forked and appended to at random, against plain lists."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: dict[str, list[str]] = {}
        self._logs: dict[str, list[str]] = {}  # the digests as they were after its own last change

    async def _changed(self, session_id: str) -> None:
        self._logs[session_id] = [each.digest for each in await stored(self._log, session_id)]

    async def plant(self, key: str) -> None:
        async with self._log.session(key=key) as session:
            self._said[session.id] = []
        await self._changed(session.id)

    async def say(self, which: int, text: str) -> None:
        session_id = list(self._said)[which % len(self._said)]
        async with self._log.session(id=session_id) as session:
            await session.user_message(text)
        self._said[session_id].append(text)
        await self._changed(session_id)

    async def branch(self, which: int, share: float) -> None:
        session_id = list(self._said)[which % len(self._said)]
        events = await stored(self._log, session_id)
        at = round(share * len(events))
        made = await self._log.fork(session_id, at=at)
        kept = [each.payload["content"] for each in events[:at] if each.type == "user_message"]
        self._said[made] = kept
        await self._changed(made)

    async def check(self) -> None:
        for session_id, said in self._said.items():
            events = await stored(self._log, session_id)
            assert chain_is_whole(events)
            assert [each.digest for each in events] == self._logs[session_id]
            context = (await self._log.state(session_id)).messages()
            assert "".join(content_of(each) for each in context) == "".join(said)
            found = [each.payload["content"] for each in events if each.type == "user_message"]
            assert found == said


def content_of(message: dict[str, object]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "".join(block["text"] for block in content)


# Which session, and at which share of its events it is forked; None: something is said in it.
Steps = list[tuple[int, float | None]]
STEPS = st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(0, 1)), min_size=4, max_size=14)


@pytest.mark.timeout(120)  # 15 trees of real sessions
def test_nothing_appended_to_one_side_ever_shows_on_another(nats_url: str) -> None:
    trees = iter(range(1_000))

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def grow(steps: Steps) -> None:
        asyncio.run(grown(nats_url, f"tree {next(trees)}", steps))

    grow()


async def grown(nats_url: str, key: str, steps: Steps) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        tree = Tree(log)
        await tree.plant(key)
        for n, (which, share) in enumerate(steps):
            await (tree.say(which, f"said {n}") if share is None else tree.branch(which, share))
        await tree.check()
