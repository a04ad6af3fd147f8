"""An agent's whole work, done step by step: what each role's permissions are measured by."""

import io

import pytest

from flightlog import BlobMissing, Call, Decide, Log, RunTools, Session, Suspended
from flightlog.bus.protocol import Message
from flightlog.running import inbox
from flightlog.running.inbox import Decision
from flightlog.subscribing.letter import Letter
from flightlog.wire import subject as names
from flightlog.wire.chunk import Blob
from tests.handmade import chain
from tests.recorder.recorded import write
from tests.scripted import Model, asks, says

TENANT = "acme"
LARGE = "x" * 600_000  # more than an event holds


async def turn(session: Session, *calls: tuple[str, str, dict[str, object]]) -> None:
    model = Model(asks(*calls) if calls else says("done"))
    await session.model_call({"model": "m", "messages": session.state.messages()}, call=model)


def owed(session: Session) -> tuple[Call, ...]:
    step = session.state.next
    assert isinstance(step, RunTools | Decide)
    return step.calls


async def begin(log: Log, key: str = "job") -> str:
    """A session with blobs that is left with a call in flight."""
    async with log.session(key=key, labels={"job": "nightly"}) as session:
        await session.user_message(LARGE, once="task")
        await session.attach(io.BytesIO(LARGE.encode()))
        await turn(session, ("a", "look", {}), ("b", "wire", {}))
        look, wire = owed(session)
        await session.tool_call(look, run=lambda: LARGE, on_resume="rerun")
        with pytest.raises(Suspended):
            async with session.calling(wire, on_resume="ask"):
                await session.suspend("the pod goes")
    return session.id


async def resume(log: Log, operator: Log) -> str:
    """The call is ruled through the inbox; a child, progress, and the end."""
    async with log.session(key="job", on_live="refuse") as session:
        await operator.send(session.id, ruling_for(*owed(session)))
        assert await session.wait(10)
        await session.progress("half")
        await turn(session, ("c", "sub", {}))
        [call] = owed(session)
        async with session.child(call) as child:
            await child.end()
        await session.tool_call(call, run=lambda: "ok", on_resume="rerun")
        await turn(session)
        await session.end()
    return session.id


def ruling_for(call: Call) -> Decision:
    return inbox.decision(
        call.call_id, announced_by=call.announced_by, ruling="fail", by="ops", reason="no"
    )


async def look_back(log: Log, session: str) -> None:
    assert [event async for event in log.read(session)]
    fork = await log.fork(session, at=4, key="fork")
    assert await log.look_up("fork") == fork
    async with log.watch(fork):
        pass
    listening = await log.bus.listen(names.progress_subject(TENANT, "*"), nothing)
    await listening.close()
    with pytest.raises(BlobMissing):
        [_ async for _ in log.blob(session, Blob(digest="0" * 64, size=1, kind="bytes"))]


async def nothing(_: Message) -> None:
    pass


async def damage(log: Log) -> str:
    """A log with a gap: that it is one only the leader can tell."""
    broken = names.mint()
    events = chain(3, session=broken)
    await write(log, broken, [events[0], events[2]])
    return broken


def letter_about(session: str) -> Letter:
    return Letter(
        name="mailer",
        session_id=session,
        seq=1,
        type="note",
        stream="FLIGHTLOG_0",
        sequence=1,
        attempts=1,
        reason="no such address",
        ts="2026-05-06T14:23:01.123456Z",
    )
