"""Children: one for each call of their parent, and stopped with it."""

import asyncio
from typing import Any

import pytest

from flightlog import (
    Call,
    CallModel,
    CallRefused,
    InvalidValue,
    Log,
    RunTools,
    Session,
    SessionEnded,
    connect,
)
from flightlog.cache.catalog import Filter, Row, members, row_of
from flightlog.lineage import Parent
from flightlog.usage import Usage
from tests.scripted import TENANT, Model, asks, payloads, says, types, until


async def called(session: Session, *calls: tuple[str, str, dict[str, Any]]) -> tuple[Call, ...]:
    """The calls that a model has just asked for."""
    await session.user_message("go")
    request = {"model": "m", "messages": session.state.messages()}
    await session.model_call(request, call=Model(asks(*calls)))
    step = session.state.next
    assert isinstance(step, RunTools)
    return step.calls


async def in_a_child(session: Session, call: Call, work: Any, **options: Any) -> Any:
    """Run the call's tool in a child of its own."""

    async def run(**_: Any) -> Any:
        async with session.child(call, **options) as child:
            return await work(child)

    return await session.tool_call(call, run=run, on_resume="rerun")


async def test_a_child_names_the_call_that_opened_it_and_lends_its_parents_version(
    nats_url: str,
) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session(key="job", harness_version="7") as parent:
            (call,) = await called(parent, ("a", "sub", {}))

            async def work(child: Session) -> str:
                await child.end(result="found")
                return child.id

            result = await in_a_child(parent, call, work, name="scout", labels={"x": "y"})
        state = await log.state(result.output)

    assert state.lineage.parent == Parent(parent.id, "a", call.announced_by, "scout")
    assert (state.harness_version, state.labels) == ("7", {"x": "y"})
    assert result.output != parent.id


async def test_a_call_that_is_run_again_finds_the_child_of_its_first_run(nats_url: str) -> None:
    opened: list[str] = []

    async def dies(child: Session) -> None:
        opened.append(child.id)
        await child.user_message("half done", once="task")
        await parent.suspend("the node goes away")

    async def goes_on(child: Session) -> str:
        opened.append(child.id)
        await child.user_message("half done", once="task")
        return f"{len(child.state.messages())} message"

    async with connect(nats=nats_url, tenant=TENANT) as log:
        with pytest.raises(BaseException, match="suspended"):
            async with log.session(key="job") as parent:
                (call,) = await called(parent, ("a", "sub", {}))
                await in_a_child(parent, call, dies)
        async with log.session(key="job") as parent:
            step = parent.state.next
            assert isinstance(step, RunTools)
            (again,) = step.calls
            result = await in_a_child(parent, again, goes_on)
        assert result.output == "1 message"
        assert opened[0] == opened[1]
        assert (await types(log, opened[0])).count("user_message") == 1


async def test_a_child_that_has_ended_is_found_with_its_result(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as parent:
        async with parent.child(name="scout") as child:
            await child.end(result={"found": 3})
        async with parent.child(name="scout") as again:
            assert again.id == child.id
            assert bytes(again.state.result) == b'{"found":3}'
            with pytest.raises(SessionEnded):
                await again.user_message("more?")


async def test_repeated_call_ids_open_a_child_for_each_turn(nats_url: str) -> None:
    ids: list[str] = []

    async def work(child: Session) -> None:
        ids.append(child.id)

    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as parent:
        for _ in range(2):
            (call,) = await called(parent, ("call_0", "sub", {}))
            await in_a_child(parent, call, work)
    assert len(set(ids)) == 2


async def test_by_its_id_alone_a_call_is_the_one_that_runs(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as parent:
        (call,) = await called(parent, ("call_0", "sub", {}))
        with pytest.raises(CallRefused, match="call_0"):
            async with parent.child(call_id="call_0"):
                pass

        async def work(child: Session) -> None:
            async with parent.child(call_id="call_0") as same:
                assert same.id == child.id

        await in_a_child(parent, call, work)
        async with (
            parent.calling("sub", call_id="mine"),
            parent.child(call_id="mine") as unannounced,
        ):
            pass
        state = await log.state(unannounced.id)
        assert state.lineage.parent == Parent(parent.id, "mine")


async def test_a_child_without_a_call_or_a_name_is_refused(nats_url: str) -> None:
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as parent:
        with pytest.raises(InvalidValue, match="child"):
            async with parent.child():
                pass
        with pytest.raises(CallRefused, match="other"):
            async with parent.child(call_id="other"):
                pass
        await parent.end()
        with pytest.raises(SessionEnded):
            async with parent.child(name="late"):
                pass


async def test_suspending_the_parent_leaves_the_calls_of_its_child_in_flight(
    nats_url: str,
) -> None:
    inside = asyncio.Event()

    async def work(child: Session) -> None:
        found.append(child.id)
        (call,) = await called(child, ("b", "deep", {}))

        async def deep(**_: Any) -> None:
            inside.set()
            await asyncio.Event().wait()

        await child.tool_call(call, run=deep, on_resume="rerun")

    found: list[str] = []
    async with connect(nats=nats_url, tenant=TENANT) as log:
        async with log.session() as parent:
            (call,) = await called(parent, ("a", "sub", {}))
            running = asyncio.create_task(in_a_child(parent, call, work))
            await inside.wait()
            await parent.suspend("enough")
            await asyncio.wait([running])
        for session in (parent.id, found[0]):
            assert (await types(log, session))[-2:] == ["tool_call", "session_suspended"]


async def test_a_takeover_of_the_parent_leaves_the_calls_of_its_child_in_flight(
    nats_url: str,
) -> None:
    inside = asyncio.Event()

    async def work(child: Session) -> None:
        found.append(child.id)
        async with child.calling("deep", call_id="b"):
            inside.set()
            await asyncio.Event().wait()

    found: list[str] = []
    async with (
        connect(nats=nats_url, tenant=TENANT) as log,
        connect(nats=nats_url, tenant=TENANT) as other,
        log.session(key="job") as parent,
    ):
        (call,) = await called(parent, ("a", "sub", {}))
        running = asyncio.create_task(in_a_child(parent, call, work))
        await inside.wait()
        async with other.session(key="job"):
            await asyncio.wait([running])
            events = await until(lambda: closed(other, found[0]))
    assert events[-2:] == ["tool_call", "session_suspended"]


async def closed(log: Log, session: str) -> list[str]:
    found = await types(log, session)
    return found if found[-1] == "session_suspended" else []


async def test_cancelling_the_parents_call_closes_the_calls_of_its_child(nats_url: str) -> None:
    inside = asyncio.Event()

    async def work(child: Session) -> None:
        found.append(child.id)
        async with child.calling("deep", call_id="b"):
            inside.set()
            await asyncio.Event().wait()

    found: list[str] = []
    async with connect(nats=nats_url, tenant=TENANT) as log, log.session() as parent:
        (call,) = await called(parent, ("a", "sub", {}))
        running = asyncio.create_task(in_a_child(parent, call, work))
        await inside.wait()
        running.cancel()
        await asyncio.wait([running])
        for session in (parent.id, found[0]):
            (ended,) = await payloads(log, session, "tool_result")
            assert ended["outcome"] == "cancelled"


async def test_the_catalog_lists_a_sessions_children_and_adds_up_the_tokens_of_all(
    nats_url: str, redis_url: str
) -> None:
    """The rows are written here, as the projector would."""

    async def answers(session: Session) -> None:
        await session.user_message("go")
        assert isinstance(session.state.next, CallModel)
        await session.model_call({"model": "m", "messages": []}, call=Model(says("done")))

    async with connect(nats=nats_url, redis=redis_url, tenant=TENANT) as log:
        async with (
            log.session() as top,
            top.child(name="one") as one,
            top.child(name="two") as two,
            one.child(name="deep") as deep,
        ):
            for session in (top, one, two, deep):
                await answers(session)
            for session in (top, one, two, deep):
                await project(log, session.id)
        listed = {parent: await children(log, parent.id) for parent in (top, one, two, deep)}
        total = await log.usage(top.id)
        part = await log.usage(one.id)

    assert listed == {top: {one.id, two.id}, one: {deep.id}, two: set(), deep: set()}
    assert (total, part) == (Usage(40, 20), Usage(20, 10))


async def project(log: Log, session: str) -> None:
    folded = await log.fold(session)
    at = folded.last_live
    row = row_of(folded.state, tenant=TENANT, session=session, sequence=at, read_to=at, strays=0)
    assert log.store is not None
    await log.store.save_row(row)


async def children(log: Log, parent: str) -> set[str]:
    return {row.session for row in (await log.sessions(parent=parent)).rows}


def test_a_fork_of_a_child_is_nobodys_child() -> None:
    lineage = {"parent": {"session": "sess_p"}}
    child = Row(tenant=TENANT, session="sess_c", lineage=lineage)
    fork = Row(tenant=TENANT, session="sess_f", lineage=lineage | {"forked_from": {}})
    assert [row.session for row in (child, fork) if Filter(parent="sess_p").matches(row)] == [
        "sess_c"
    ]
    begun = Filter(parent="sess_p").origin() or b"?"
    assert [member.startswith(begun) for _, member in members(child)] == [True]
    assert members(fork) == set()
