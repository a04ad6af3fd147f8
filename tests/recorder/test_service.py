"""The recorder as a service: what others left half done is finished, what is wrong is named."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

import flightlog
from flightlog import Log
from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.catalog import Row
from flightlog.subscribing import standing
from flightlog.wire import carry
from flightlog.wire import subject as names
from flightlog.wire.layout import INBOX_STREAM
from flightlog.writing import keys, seal
from flightlog.writing.draft import Draft
from flightlog_recorder.embedded import Servers
from flightlog_recorder.purge import purge, unfinished
from flightlog_recorder.purge.purge import Reason
from flightlog_recorder.service import lag
from flightlog_recorder.service.metrics import Metrics
from flightlog_recorder.service.rounds import Rounds
from flightlog_recorder.service.settings import BadSettings, Settings, load
from tests.handmade import chain, tombstone
from tests.recorder.recorded import talk, write
from tests.scripted import TENANT, until

KEY = "imports/1"
DAY = 86_400.0


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with flightlog.connect(
        nats=servers.nats_url, redis=servers.redis_url, tenant=TENANT
    ) as log:
        yield log


class Recorder:
    """Rounds on a log's own connection, one at a time."""

    def __init__(self, log: Log, *, base_age: float = DAY) -> None:
        settings = Settings(duty=1, round_pause=0, base_age=base_age)
        self.metrics = Metrics()
        self.rounds = Rounds(bus_of(log), log.store, settings, self.metrics)

    async def goes_round(self) -> None:
        going = asyncio.create_task(self.rounds.run())
        before = self.count("rounds_total")
        await until(lambda: self.later(before))
        self.rounds.stop()
        await going

    async def later(self, before: float) -> bool:
        return self.count("rounds_total") > before

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"flightlog_recorder_{name}", labels) or 0


def bus_of(log: Log) -> NatsBus:
    assert isinstance(log.bus, NatsBus)
    return log.bus


async def test_a_purge_that_a_crash_left_is_finished(log: Log) -> None:
    whole, session = await talk(log), names.mint()
    last = await write(log, session, [*chain(3, session=session), tombstone(session=session)])
    assert last
    recorder = Recorder(log)
    await recorder.goes_round()
    assert [each async for each in unfinished(log, bus_of(log))] == []
    assert recorder.count("finished_purges_total") == 1
    assert (await log.state(whole)).status == "completed"


async def half_a_base(log: Log) -> keys.Entry:
    entry = await keys.claim(log.bus, TENANT, KEY, made_by="import")
    await write(log, entry.id, chain(2, session=entry.id), part="base")
    return entry


async def test_a_base_that_nobody_sealed_is_given_up_after_its_day_and_its_key_is_free(
    log: Log,
) -> None:
    entry = await half_a_base(log)
    await Recorder(log).goes_round()
    assert (await seal.look(bus_of(log), TENANT, entry.id)).standing == "open"
    recorder = Recorder(log, base_age=0)
    await recorder.goes_round()
    assert (await seal.look(bus_of(log), TENANT, entry.id)).standing == "abandoned"
    assert await keys.look_up(log.bus, TENANT, KEY) is None
    assert recorder.count("abandoned_bases_total") == 1


async def test_a_sealed_base_stays_whatever_its_age(log: Log) -> None:
    entry = await keys.claim(log.bus, TENANT, KEY, made_by="import")
    drafts = [Draft("note", carry.pack({"n": n})) for n in range(3)]
    await seal.write_base(bus_of(log), TENANT, entry.id, drafts)
    await Recorder(log, base_age=0).goes_round()
    assert (await log.state(entry.id)).seq == 3


async def inbox_of(log: Log, session: str) -> int:
    page = await log.bus.page(INBOX_STREAM, names.inbox_subject(TENANT, session, "*"), 1)
    return len(page.messages)


async def test_inbox_items_go_once_the_log_has_taken_them_and_not_before(log: Log) -> None:
    async with log.session(key="k") as session:
        await session.user_message("first")
    await log.say(session.id, "taken")
    async with log.session(key="k"):
        pass
    await log.say(session.id, "not yet")
    assert await inbox_of(log, session.id) == 2
    await Recorder(log).goes_round()
    assert await inbox_of(log, session.id) == 1
    async with log.session(key="k") as again:
        assert again.state.counts["user_message"] == 3


async def test_a_damaged_log_is_named_until_it_is_gone_and_the_others_are_fine(log: Log) -> None:
    await talk(log)
    session = names.mint()
    events = chain(5, session=session)
    await write(log, session, events[:2] + events[3:])
    recorder = Recorder(log)
    await recorder.goes_round()
    [(key, found)] = recorder.rounds.problems.items()
    assert key == (TENANT, session)
    assert [each.kind for each in found.problems] == ["log"]
    assert recorder.count("problem_sessions", kind="log") == 1
    await purge(log, bus_of(log), session, reason=Reason(by="a test", why="damaged"), force=True)
    again = Recorder(log)
    await again.goes_round()
    assert not again.rounds.problems


async def test_the_catalog_is_told_what_is_damaged_until_it_is_mended(log: Log) -> None:
    assert log.store is not None
    session = names.mint()
    events = chain(5, session=session)
    last = await write(log, session, events[:2] + events[3:])
    await log.store.save_row(Row(tenant=TENANT, session=session, read_to=1))
    await Recorder(log).goes_round()
    [row] = (await log.sessions(damaged=True)).rows
    assert row.session == session
    assert "fork it at 2" in (row.trouble or "")
    await write(log, session, events[2:], last=last)
    await Recorder(log).goes_round()
    assert (await log.sessions(damaged=True)).rows == []


async def test_blobs_that_a_session_uses_stay(log: Log) -> None:
    async with log.session(key="k") as session:
        await session.append("note", {"text": "x" * 400_000})
    recorder = Recorder(log)
    await recorder.goes_round()
    assert recorder.count("sessions_total") >= 1
    assert recorder.count("collected_chunks_total") == 0
    *_, event = [each async for each in log.read(session.id) if each.type == "note"]
    assert (await log.payload(event))["text"] == "x" * 400_000


async def test_nothing_to_look_after_is_no_reason_to_be_restarted(log: Log) -> None:
    recorder = Recorder(log)
    await recorder.goes_round()
    assert recorder.rounds.why_dead() is None


async def test_it_stops_in_order_and_says_what_it_found(servers: Servers) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "flightlog_recorder.service",
        env={**os.environ, **servers.environment(), "FLIGHTLOG_HTTP_PORT": "0"},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    first = await process.stderr.readline()
    assert b"HTTP on port" in first
    port = int(first.split()[-1])
    assert await page(port, "/livez") == "ok"
    assert "flightlog_recorder_rounds_total" in await page(port, "/metrics")
    process.send_signal(signal.SIGTERM)
    said = (await process.stderr.read()).decode()
    assert await process.wait() == 0
    assert "stopped; 0 sessions have problems" in said


async def page(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answered = (await reader.read()).decode()
    writer.close()
    return answered.partition("\r\n\r\n")[2]


def test_bad_settings_are_named_without_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTLOG_DUTY", "13.5")
    with pytest.raises(BadSettings, match="FLIGHTLOG_DUTY") as refused:
        load()
    assert "13.5" not in str(refused.value)


async def test_the_lag_of_subscribers_is_told_until_they_are_removed(log: Log) -> None:
    bus, metrics = bus_of(log), Metrics()

    def told(name: str) -> float | None:
        whose = {"tenant": TENANT, "subscriber": "mail"}
        return metrics.registry.get_sample_value(f"flightlog_subscriber_{name}", whose)

    async with log.subscribe("mail"):
        pass
    async with log.session() as session:
        await session.append("note", 1)
    watching = asyncio.create_task(lag.watch(bus, metrics, every=0.05))
    await until(lambda: told("lag") == 3)
    assert (told("in_hand"), told("dead_letters")) == (0, 0)
    await standing.remove(bus, TENANT, "mail")
    await until(lambda: told("lag") is None)
    watching.cancel()
