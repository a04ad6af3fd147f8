"""Sessions of which nothing is heard: marked, announced once, and free for whoever comes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import flightlog
from flightlog import Log
from flightlog.bus.nats_bus import NatsBus
from flightlog.bus.protocol import Outgoing
from flightlog.running import alive
from flightlog.wire import subject as names
from flightlog.wire.layout import NOTICE_STREAM, STALLED
from flightlog_recorder.embedded import Servers
from flightlog_recorder.service import ears
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.service.stalled import Watch
from tests.handmade import follow
from tests.recorder.command import flightlog as command
from tests.recorder.recorded import left_running, project, talk
from tests.scripted import TENANT, stored, until

pytestmark = pytest.mark.timeout(40)  # some of these run the command, a process each

SOON = 0.2  # seconds of silence that are enough here


@pytest.fixture
async def other(servers: Servers) -> AsyncIterator[Log]:
    async with flightlog.connect(
        nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT
    ) as log:
        yield log


def watch(log: Log, *, after: float = SOON) -> Watch:
    assert isinstance(log.bus, NatsBus)
    assert log.store is not None
    return Watch(log.bus, log.store, Metrics(), after=after)


async def mark_of(log: Log, session: str) -> str | None:
    assert log.store is not None
    row = await log.store.row(TENANT, session)
    assert row is not None
    return row.stalled


async def marked(log: Log, watching: Watch, session: str) -> None:
    async def looked() -> str | None:
        await watching.look(TENANT)
        return await mark_of(log, session)

    await until(looked)


async def looked_twice(watching: Watch) -> None:
    """Look, and again after more silence than is needed."""
    await watching.look(TENANT)
    await asyncio.sleep(2 * SOON)  # silence is what is tested
    await watching.look(TENANT)


async def notices(log: Log, session: str) -> int:
    page = await log.bus.page(NOTICE_STREAM, names.notice_subject(TENANT, session), 1)
    return len(page.messages)


async def test_a_session_of_which_nothing_is_heard_is_marked_until_its_next_event(
    log: Log,
) -> None:
    session = await left_running(log)
    await marked(log, watch(log), session)
    assert [row.session for row in (await log.sessions(stalled=True)).rows] == [session]
    async with log.session(id=session) as resumed:
        await project(log, session)
        assert await mark_of(log, session) is None
        assert not (await log.sessions(stalled=True)).rows
        await resumed.end()


async def test_stalled_sessions_are_counted_for_an_alert_until_somebody_goes_on_with_them(
    log: Log,
) -> None:
    session, watching = await left_running(log), watch(log)
    await marked(log, watching, session)
    assert count(watching) == 1
    async with log.session(id=session) as resumed:
        await resumed.end()
    await project(log, session)
    await watching.look(TENANT)
    assert count(watching) == 0


def count(watching: Watch) -> float | None:
    name = "flightlog_recorder_stalled_sessions"
    return watching._metrics.registry.get_sample_value(name, {"tenant": TENANT})


async def test_it_is_announced_to_subscribers_once_however_many_recorders_see_it(
    log: Log, other: Log
) -> None:
    session = await left_running(log)
    async with log.subscribe("people", types=[STALLED]) as subscription:
        await asyncio.gather(marked(log, watch(log), session), marked(other, watch(other), session))
        await marked(log, watch(log), session)
        async for delivery in subscription:
            told = delivery.event.payload
            assert (delivery.event.session_id, told["seq"], told["key"]) == (session, 1, "job/1")
            await delivery.ack()
            break
    assert await notices(log, session) == 1


async def test_a_catalog_that_was_lost_announces_nothing_twice(log: Log) -> None:
    session = await left_running(log)
    await marked(log, watch(log), session)
    assert log.store is not None
    await log.store._client.flushall()
    await project(log, session)
    await marked(log, watch(log), session)
    assert await notices(log, session) == 1


async def test_a_session_that_stalls_again_after_another_event_is_announced_again(
    log: Log,
) -> None:
    session = await left_running(log)
    await marked(log, watch(log), session)
    [first] = await stored(log, session)
    more = follow(first, session=session)
    live = names.log_subject(TENANT, session, "live")
    await log.bus.append(live, [Outgoing(more.body, {})], expected=first.sequence, timeout=5)
    await project(log, session)
    await marked(log, watch(log), session)
    assert await notices(log, session) == 2


async def test_a_process_that_is_idle_and_alive_is_not_stalled(log: Log, other: Log) -> None:
    async with other.session(key="chat") as session:
        await project(log, session.id)
        await looked_twice(watch(log))
        assert await mark_of(log, session.id) is None
        assert not await notices(log, session.id)


async def test_a_mark_goes_when_its_process_is_heard_again(
    log: Log, other: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alive, "BEAT_SECONDS", 0.05)
    session = await left_running(log)
    watching = watch(log, after=1.0)
    await marked(log, watching, session)
    beating = alive.Beats(other.bus, TENANT)
    beating.opened(session)

    async def unmarked() -> bool:
        await watching.look(TENANT)
        return await mark_of(log, session) is None

    await until(unmarked)
    await beating.close()


async def test_a_log_that_goes_on_beyond_the_catalog_is_not_stalled(log: Log) -> None:
    async with log.session(key="k") as session:
        await project(log, session.id)
    await looked_twice(watch(log))
    assert await mark_of(log, session.id) is None


async def test_a_stalled_session_is_owned_at_once_by_whoever_opens_it(log: Log) -> None:
    session = await left_running(log)
    await marked(log, watch(log), session)
    async with asyncio.timeout(alive.SILENCE / 3), log.session(key="job/1") as resumed:
        assert resumed.id == session
        await resumed.end()


async def test_a_job_that_stalled_is_started_again_at_once(servers: Servers, log: Log) -> None:
    session = await left_running(log, "job/2")
    await marked(log, watch(log), session)
    async with asyncio.timeout(alive.SILENCE * 0.8):
        ran = await command(servers)("run", "--key", "job", "--schedule-time", "2", "--", "true")
    assert (ran.code, (await log.state(session)).status) == (0, "completed")


async def test_a_listing_by_key_tells_each_time_of_a_job_in_plain_words(
    servers: Servers, log: Log
) -> None:
    stalled = await left_running(log, "job/3")
    await marked(log, watch(log), stalled)
    await project(log, await talk(log, key="job/2"))
    await project(log, await talk(log, key="jobs/1"))
    async with log.session(key="job") as failed:
        await failed.end("failed", error="no use")
    await project(log, failed.id)
    async with log.session(key="job/4") as asking:
        await asking.append("note", 1)
        await project(log, asking.id)
        ran = await command(servers)("ls", "--key", "job")
    told = {line.split()[-1]: line.split()[1] for line in ran.out.splitlines()[1:]}
    assert told == {"job/3": "stalled", "job/2": "done", "job": "failed", "job/4": "running"}
    found = (await command(servers)("ls", "--key", "job", "--stalled", "--json")).json["sessions"]
    assert [(row["key"], row["status"]) for row in found] == [("job/3", "running")]
    assert found[0]["stalled"] == found[0]["last_ts"]


def test_a_session_that_was_never_heard_of_is_judged_after_a_span_of_full_beats() -> None:
    assert ears.SPAN == 75.0
