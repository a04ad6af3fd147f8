"""Verification: whatever is wrong with a log, a snapshot or a row is found and named."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from flightlog import Event, Log, connect
from flightlog.bus.nats_bus import NatsBus
from flightlog.reading.reader import Folded
from flightlog.state import SessionState
from flightlog.wire import subject as names
from flightlog_recorder.embedded import Server, Servers
from flightlog_recorder.verify import Checker, Verdict, ghosts, sessions
from tests.handmade import chain, follow, seal, tombstone
from tests.recorder.recorded import fold, project, raise_floor, row, save, snapshot, talk, write
from tests.scripted import TENANT


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT) as log:
        yield log


def bus_of(log: Log) -> NatsBus:
    assert isinstance(log.bus, NatsBus)
    return log.bus


async def check(log: Log, session: str) -> Verdict:
    return await Checker(bus_of(log), log.store, TENANT).check(session)


def found(verdict: Verdict) -> list[str]:
    return [finding.kind for finding in verdict.problems]


async def by_hand(log: Log, bodies: list[Event | bytes], session: str) -> Verdict:
    await write(log, session, bodies)
    return await check(log, session)


async def test_a_session_with_its_snapshot_and_row_is_fine(log: Log) -> None:
    session = await talk(log)
    folded = await project(log, session)
    verdict = await check(log, session)
    assert (verdict.outcome, verdict.problems, verdict.notes) == ("ok", [], [])
    assert (verdict.events, verdict.digest) == (folded.seq, folded.digest)
    assert verdict.checked == [f"snapshot at {folded.seq}", "row"]


async def test_a_snapshot_in_the_middle_is_compared_with_the_state_there(log: Log) -> None:
    session = await talk(log)
    early = await at_four(log, session)
    await save(log, session, snapshot(early))
    assert (await check(log, session)).checked == [f"snapshot at {early.seq}"]
    await save(log, session, snapshot(early, state=replace(early.state, model="another")))
    assert found(await check(log, session)) == ["snapshot"]


async def at_four(log: Log, session: str) -> Folded[SessionState]:
    whole = await fold(log, session)
    events = [event async for event in log.read(session)]
    state, event = await log.state(session, at=4), events[3]
    head = replace(whole.head, seq=4, digest=event.digest, sequence=event.sequence)
    return replace(whole, state=state, head=head, read_to=event.sequence)


async def test_a_lost_event_is_found(log: Log) -> None:
    session = names.mint()
    events: list[Event | bytes] = [*chain(5, session=session)]
    verdict = await by_hand(log, events[:2] + events[3:], session)
    assert (verdict.outcome, found(verdict), verdict.events) == ("problem", ["log"], 2)


async def test_an_edited_event_is_found(log: Log) -> None:
    session = names.mint()
    events = chain(4, session=session)
    edited = events[1].body.replace(b'"n":1', b'"n":9')
    verdict = await by_hand(log, [events[0], edited, *events[2:]], session)
    assert found(verdict) == ["log"]


async def test_swapped_events_are_found(log: Log) -> None:
    session = names.mint()
    first, second, third, *rest = chain(5, session=session)
    verdict = await by_hand(log, [first, third, second, *rest], session)
    assert verdict.outcome == "problem"


async def test_a_doubled_event_is_a_stray(log: Log) -> None:
    session = names.mint()
    first, second, third = chain(3, session=session)
    verdict = await by_hand(log, [first, second, second, third], session)
    assert (found(verdict), verdict.strays, verdict.events) == (["stray"], 1, 3)
    assert "stored twice" in verdict.problems[0].what


async def test_what_a_fenced_writer_wrote_is_a_stray(log: Log) -> None:
    session = names.mint()
    verdict = await by_hand(log, [*branch(session)], session)
    assert found(verdict) == ["stray"]
    assert "branch" in verdict.problems[0].what


def branch(session: str) -> list[Event]:
    """Two events after one: the second, of a new writer, wins."""
    one = started(None, 1, session)
    return [one, follow(one, session=session), started(one, 2, session)]


def started(last: Event | None, number: int, session: str) -> Event:
    kind = "session_resumed" if last else "session_started"
    writer = {"writer": {"number": number, "id": f"w{number}"}}
    return follow(last, type=kind, payload=writer, session=session)


async def test_a_foreign_message_on_the_subject_is_a_stray(log: Log) -> None:
    session = names.mint()
    verdict = await by_hand(log, [*chain(2, session=session), b"\xff not an event"], session)
    assert (found(verdict), verdict.events) == (["stray"], 2)


async def test_a_seal_that_names_other_events_is_found(log: Log) -> None:
    session = names.mint()
    events = chain(3, session=session)
    await write(log, session, [*events, seal(events[:2], session=session)], part="base")
    assert found(await check(log, session)) == ["log"]


async def test_a_sealed_base_with_live_events_is_fine(log: Log) -> None:
    session = names.mint()
    events = chain(3, session=session)
    await write(log, session, [*events, seal(events, session=session)], part="base")
    await write(log, session, [follow(events[-1], session=session)])
    verdict = await check(log, session)
    assert (verdict.outcome, verdict.events) == ("ok", 4)


async def test_a_base_without_its_seal_is_named_and_is_no_problem(log: Log) -> None:
    session = names.mint()
    await write(log, session, [*chain(3, session=session)], part="base")
    verdict = await check(log, session)
    assert (verdict.outcome, verdict.problems) == ("unsealed", [])


async def test_a_purged_session_is_named_and_is_no_problem(log: Log) -> None:
    session = names.mint()
    verdict = await by_hand(log, [tombstone(session=session)], session)
    assert (verdict.outcome, verdict.problems) == ("purged", [])


async def test_a_log_that_ends_below_its_snapshot_has_lost_events(log: Log) -> None:
    session = await talk(log)
    folded = await project(log, session)
    beyond = replace(folded.head, seq=folded.seq + 3, sequence=folded.sequence + 3)
    await save(log, session, snapshot(replace(folded, head=beyond)))
    verdict = await check(log, session)
    assert found(verdict) == ["log"]
    assert "lost" in verdict.problems[0].what


async def test_a_snapshot_of_another_history_is_found(log: Log) -> None:
    session = await talk(log)
    folded = await project(log, session)
    other = replace(folded.head, digest="0" * 64)
    await save(log, session, snapshot(replace(folded, head=other)))
    assert found(await check(log, session)) == ["snapshot"]


async def test_a_snapshot_that_replay_does_not_give_is_found(log: Log) -> None:
    session = await talk(log)
    folded = await project(log, session)
    await save(log, session, snapshot(folded, state=replace(folded.state, key="another")))
    assert found(await check(log, session)) == ["snapshot"]


async def test_a_garbage_snapshot_is_found(log: Log) -> None:
    session = await talk(log)
    await project(log, session)
    await save(log, session, b"garbage\n")
    verdict = await check(log, session)
    assert found(verdict) == ["snapshot"]
    assert "garbage" in verdict.problems[0].what


async def test_a_row_that_says_something_else_is_found_by_its_fields(log: Log) -> None:
    assert log.store is not None
    session = await talk(log)
    wrong = replace(row(session, await fold(log, session)), labels={"a": "b"}, status="failed")
    await log.store.save_row(wrong)
    verdict = await check(log, session)
    assert found(verdict) == ["catalog"]
    assert "labels" in verdict.problems[0].what
    assert "status" in verdict.problems[0].what


async def test_a_missing_row_is_a_problem_only_where_the_catalog_says_it_is_whole(log: Log) -> None:
    session = await talk(log)
    folded = await fold(log, session)
    verdict = await check(log, session)
    assert (verdict.outcome, len(verdict.notes)) == ("ok", 1)
    await raise_floor(log, session, folded.read_to)
    assert found(await check(log, session)) == ["catalog"]


async def test_a_row_that_is_behind_is_compared_at_its_own_seq(log: Log) -> None:
    assert log.store is not None
    session = await talk(log)
    await log.store.save_row(row(session, await at_four(log, session)))
    verdict = await check(log, session)
    assert (verdict.outcome, verdict.problems) == ("ok", [])
    assert "row ends at seq 4" in verdict.notes[0]


async def test_without_redis_the_log_alone_is_verified(log: Log) -> None:
    session = await talk(log)
    verdict = await Checker(bus_of(log), None, TENANT).check(session)
    assert (verdict.outcome, verdict.checked) == ("ok", [])


async def test_a_redis_that_is_down_is_noted_and_the_log_verified(
    nats_server: Server, redis_server: Server
) -> None:
    async with connect(nats=nats_server.url, redis=redis_server.url, tenant=TENANT) as log:
        session = await talk(log)
        redis_server.kill()
        verdict = await check(log, session)
    assert verdict.outcome == "ok"
    assert "Redis does not answer" in verdict.notes[0]


async def test_all_sessions_of_the_streams_are_found_and_no_others(log: Log) -> None:
    mine = {await talk(log) for _ in range(3)}
    sealed = names.mint()
    events = chain(2, session=sealed)
    await write(log, sealed, [*events, seal(events, session=sealed)], part="base")
    async with connect(nats=bus_url(log), tenant="another") as other:
        await talk(other)
    listed = [session async for some in sessions(bus_of(log), TENANT) for session in some]
    assert sorted(listed) == sorted({*mine, sealed})


def bus_url(log: Log) -> str:
    servers: list[str] = bus_of(log)._options["servers"]
    return ",".join(servers)


async def test_a_row_without_a_log_is_found(log: Log) -> None:
    assert log.store is not None
    session = await talk(log)
    folded = await project(log, session)
    gone = replace(row(session, folded), session="sess_gone")
    await log.store.save_row(gone)
    found = [session async for some in ghosts(bus_of(log), log.store, TENANT) for session in some]
    assert found == ["sess_gone"]


async def test_a_session_that_is_written_to_meanwhile_is_never_a_problem(log: Log) -> None:
    async with log.session() as session:
        await session.user_message("begin")

        async def keep_writing() -> None:
            for n in range(200):
                await session.append("note", {"n": n})

        writing = asyncio.create_task(keep_writing())
        verdicts = []
        while not writing.done():
            await project(log, session.id)
            verdicts.append(await check(log, session.id))
        await writing
    assert verdicts
    assert [verdict.problems for verdict in verdicts if verdict.problems] == []
