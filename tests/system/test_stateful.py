"""Random lives of a session on real servers, against a plain list of what must be in its log.

Appends, parallel calls, crashes, resumes, zombies, snapshots, a Redis that is emptied or set back,
decisions and purges, in any order. Processes are puppets (tests/system/puppet.py), so that each can
be cut or frozen at any turn of its loop.
"""

import asyncio
import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import redis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flightlog import Event, Fenced, Result, SessionPurged
from flightlog.bus.nats_bus import NatsBus
from flightlog.cache.place import Places
from flightlog.running import inbox, opening
from flightlog.snapshot import SESSION
from flightlog_projector.metrics import Metrics
from flightlog_projector.projector import Job, Projector
from flightlog_recorder.embedded import Servers
from flightlog_recorder.purge import purge
from flightlog_recorder.purge.purge import Reason
from tests.scripted import TENANT, chain_is_whole, stored
from tests.system.puppet import Puppet

Fact = tuple[str, ...]
Policy = Literal["rerun", "fail", "ask"]

WHY = Reason(by="a tester", why="a random life")
TURNS = st.one_of(st.integers(0, 12), st.integers(0, 400))  # an append takes about ten
POLICIES: st.SearchStrategy[Policy] = st.sampled_from(["rerun", "fail", "ask"])

keys = itertools.count()


@dataclass
class Bench:
    """The servers of the run, and the process of an observer who never writes a session."""

    servers: Servers
    observer: Puppet


@pytest.fixture
def bench(servers: Servers) -> Iterator[Bench]:
    observer = Puppet(servers)
    yield Bench(servers, observer)
    observer.leave()


class Life(RuleBasedStateMachine):
    """One session under one key, and every process that ever wrote it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench, self.key = bench, f"life-{next(keys)}"
        self.numbers = itertools.count()
        self.zombies: list[Puppet] = []
        self.dead: list[Puppet] = []
        self.writer: Puppet | None = None
        self.runs: Counter[str] = Counter()
        self.snapshots: list[Any] = []
        self._begin_history("")

    def _begin_history(self, id: str) -> None:
        self.id = id
        self.facts: list[Fact] = []
        self.owed: list[Fact] = []  # acked since the last look
        self.unsure: list[Fact] = []  # sent by who is gone: a prefix of it may be stored
        self.acked_unsure = 0
        self.flying: dict[str, Policy] = {}
        self.undecided: list[str] = []
        self.startable: dict[str, Policy] = {}
        self.finished: list[str] = []

    @initialize()
    def begin(self) -> None:
        self.resume()

    @rule()
    def resume(self) -> None:
        """Another process takes the session; the one that wrote it so far is frozen meanwhile."""
        if self.writer is not None:
            self.zombies.append(self.writer)
        self.writer = Puppet(self.bench.servers)
        session = self.writer.open(self.key)
        if session.id != self.id:
            assert not self.id, "a key that was not purged stands for another session"
            self._begin_history(session.id)
        for call_id, policy in self.flying.items():
            self._ruled(call_id, policy)
        self.flying.clear()
        self._settle_unsure()

    def _ruled(self, call_id: str, policy: Policy) -> None:
        match policy:
            case "rerun":
                self.startable[call_id] = policy
                self.owed.append(("decision_made", call_id, "rerun"))
            case "fail":
                self.finished.append(call_id)
                self.owed += [("decision_made", call_id, "fail"), _result(call_id, "unknown")]
            case "ask":
                self.undecided.append(call_id)
                self.owed.append(("decision_requested", call_id))

    def _settle_unsure(self) -> None:
        """The takeover decided what of it is stored, once and for all."""
        found = self._log()[len(self.facts) :]
        count = len(found) - len(self.owed)
        assert self.acked_unsure <= count <= len(self.unsure), "an acked event is lost"
        self.owed += self.unsure[:count]
        self.unsure, self.acked_unsure = [], 0

    @precondition(lambda self: self.writer)
    @rule()
    def leave(self) -> None:
        self._writer().leave()
        self.writer = None

    @precondition(lambda self: self.writer)
    @rule(count=st.integers(1, 12))
    def append(self, count: int) -> None:
        notes = self._notes(count)
        events = self._start_notes(notes).begun()
        assert all(isinstance(each, Event) for each in events), events
        self.owed += notes

    @precondition(lambda self: self.writer)
    @rule(count=st.integers(1, 30), turns=TURNS, crashes=st.booleans())
    def cut(self, count: int, turns: int, crashes: bool) -> None:
        """A burst of appends; its process dies, or freezes, some turns later."""
        notes = self._notes(count)
        writer = self._start_notes(notes)
        writer.turn(turns)
        acks = [task.done() for task in writer.working]
        assert acks == sorted(acks, reverse=True), "acks out of order"
        self.unsure, self.acked_unsure = notes, sum(acks)
        self._give_up(crashes=crashes)

    @precondition(lambda self: self.writer)
    @rule(crashes=st.booleans())
    def gone(self, crashes: bool) -> None:
        self._give_up(crashes=crashes)

    def _give_up(self, *, crashes: bool) -> None:
        writer = self._writer()
        if crashes:
            writer.crash()
        (self.dead if crashes else self.zombies).append(writer)
        self.writer = None

    @precondition(lambda self: self.zombies)
    @rule(count=st.integers(1, 5), data=st.data())
    def zombie_writes(self, count: int, data: st.DataObject) -> None:
        """A process that was frozen goes on as if nothing had happened, and has lost."""
        if self.writer is None and self.id:
            self.resume()
        zombie = data.draw(st.sampled_from(self.zombies))
        for note in self._notes(count):
            zombie.start(zombie.session.append(*_note(note)))
        *before, last = zombie.begun()
        assert isinstance(last, Fenced | SessionPurged), last
        written = {("note", str(each.payload)) for each in before if isinstance(each, Event)}
        assert written <= {*self.facts, *self.owed} or zombie.session.id != self.id

    @precondition(lambda self: self.writer)
    @rule(count=st.integers(1, 6), policy=POLICIES)
    def call_tools(self, count: int, policy: Policy) -> None:
        """Calls in parallel, all of which come to their end."""
        calls = [f"call-{next(self.numbers)}" for _ in range(count)]
        self._start_calls(dict.fromkeys(calls, policy), self._work)
        results = self._writer().begun()
        assert [each.output for each in results if isinstance(each, Result)] == calls
        self.owed += [("tool_call", call, "1") for call in calls]
        self.owed += [_result(call, "ok") for call in calls]
        self.finished += calls

    @precondition(lambda self: self.writer)
    @rule(count=st.integers(1, 4), policy=POLICIES)
    def hang(self, count: int, policy: Policy) -> None:
        """Calls that are still running when their process is gone."""
        calls = [f"call-{next(self.numbers)}" for _ in range(count)]
        self._hang(dict.fromkeys(calls, policy), "1")

    @precondition(lambda self: self.writer and self.startable)
    @rule(hangs=st.booleans())
    def run_again(self, hangs: bool) -> None:
        """What was ruled to be run again is."""
        calls, self.startable = self.startable, {}
        attempts = {call: str(self._attempts(call) + 1) for call in calls}
        if hangs:
            for call, policy in calls.items():
                self._hang({call: policy}, attempts[call])
            return
        self._start_calls(calls, self._work)
        results = self._writer().begun()
        assert [each.output for each in results if isinstance(each, Result)] == [*calls]
        self.owed += [("tool_call", call, attempts[call]) for call in calls]
        self.owed += [_result(call, "ok") for call in calls]
        self.finished += calls

    @precondition(lambda self: self.writer and self.finished)
    @rule(data=st.data())
    def call_what_is_finished(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.finished))
        self._start_calls({call: "ask"}, self._work)
        (result,) = self._writer().begun()
        assert isinstance(result, Result)

    @precondition(lambda self: self.writer and self.undecided)
    @rule(ruling=st.sampled_from(["result", "rerun", "fail"]))
    def decide(self, ruling: Literal["result", "rerun", "fail"]) -> None:
        call = self.undecided.pop(0)
        said = inbox.decision(call, announced_by=None, ruling=ruling, output=call, by="a person")
        self.bench.observer.run(self.bench.observer.log.send(self.id, said))
        self._writer().run(self._writer().session.listener.take())
        self.owed.append(("decision_made", call, ruling))
        if ruling == "rerun":
            self.startable[call] = "ask"
        else:
            self.owed.append(_result(call, "ok" if ruling == "result" else "unknown"))
            self.finished.append(call)

    @precondition(lambda self: self.id)
    @rule()
    def project(self) -> None:
        """The projector folds the session and saves its snapshot and its row."""
        self.bench.observer.run(self._project())

    async def _project(self) -> None:
        store = self.bench.observer.log.store
        assert store is not None
        projector = Projector(self.bench.observer.log.bus, store, metrics=Metrics())
        (seen,) = await store.look(TENANT, [self.id])
        job = Job(TENANT, self.id, 0, seen)
        folded = await projector._fold(job, SESSION, None)
        await (await projector._history(job, SESSION)).save(folded)
        await projector.project(job)
        with redis.Redis.from_url(self.bench.servers.redis_url) as client:
            self.snapshots += [client.hgetall(Places().snapshots(TENANT, self.id))]
        row = await store.row(TENANT, self.id)
        assert row is not None
        assert (row.seq, row.strays, row.error) == (folded.seq, 0, None)

    @precondition(lambda self: self.id and self.snapshots)
    @rule(data=st.data())
    def set_redis_back(self, data: st.DataObject) -> None:
        """An older dump: any snapshot that was true at some time."""
        value = data.draw(st.sampled_from(self.snapshots))
        with redis.Redis.from_url(self.bench.servers.redis_url) as client:
            client.delete(Places().snapshots(TENANT, self.id))
            client.hset(Places().snapshots(TENANT, self.id), mapping=value)

    @rule()
    def flush_redis(self) -> None:
        with redis.Redis.from_url(self.bench.servers.redis_url) as client:
            client.flushall()

    @precondition(lambda self: self.id)
    @rule()
    def purge(self) -> None:
        """The session is erased; its writer does not know yet, and its key mints anew."""
        self.bench.observer.run(self._purge())
        if self.writer is not None:
            self.zombies.append(self.writer)
        self.writer = None
        self.snapshots.clear()
        self._begin_history("")

    async def _purge(self) -> None:
        log = self.bench.observer.log
        assert isinstance(log.bus, NatsBus)
        await purge(log, log.bus, self.id, reason=WHY)
        with pytest.raises(SessionPurged):
            await log.state(self.id)

    @invariant()
    def the_log_is_the_list(self) -> None:
        if not self.id:
            return
        facts = self._log()
        assert facts[: len(self.facts)] == self.facts, "what was stored has changed"
        new = facts[len(self.facts) :]
        stored_unsure = len(new) - len(self.owed)
        assert self.acked_unsure <= stored_unsure <= len(self.unsure)
        assert Counter(new) == Counter([*self.owed, *self.unsure[:stored_unsure]])
        if not self.unsure:
            self.facts, self.owed = facts, []

    @invariant()
    def a_snapshot_and_its_tail_are_the_full_replay(self) -> None:
        if self.id and not self.unsure:  # else it may still grow between the two
            self.bench.observer.run(self._compare())

    async def _compare(self) -> None:
        log = self.bench.observer.log
        fast, slow = await asyncio.gather(
            log.fold(self.id), opening.fold(log.bus, TENANT, self.id, None)
        )
        assert fast.seq == slow.seq
        assert SESSION.encode(fast.state) == SESSION.encode(slow.state)
        assert slow.strays == ()

    @invariant()
    def no_tool_ran_more_often_than_it_was_started(self) -> None:
        known = [*self.facts, *self.owed]
        starts = Counter(fact[1] for fact in known if fact[0] == "tool_call")
        here = {call: runs for call, runs in self.runs.items() if starts[call]}
        assert here == {call: starts[call] for call in here}

    def teardown(self) -> None:
        for puppet in [*self.zombies, *self.dead, *([self.writer] if self.writer else [])]:
            puppet.bury()

    def _writer(self) -> Puppet:
        assert self.writer is not None
        return self.writer

    def _notes(self, count: int) -> list[Fact]:
        return [("note", str(next(self.numbers))) for _ in range(count)]

    def _start_notes(self, notes: list[Fact]) -> Puppet:
        writer = self._writer()
        for note in notes:
            writer.start(writer.session.append(*_note(note)))
        return writer

    def _hang(self, calls: dict[str, Policy], attempt: str) -> None:
        running = {call: self.runs[call] + 1 for call in calls}
        self._start_calls(calls, self._work_for_ever)
        writer = self._writer()
        while any(self.runs[call] < running[call] for call in calls):
            writer.turn(10)
        writer.working.clear()
        self.flying |= calls
        self.owed += [("tool_call", call, attempt) for call in calls]

    def _start_calls(self, calls: dict[str, Policy], work: Any) -> None:
        writer = self._writer()
        for call, policy in calls.items():
            ask = functools.partial(writer.session.tool_call, "tool", {"call": call}, run=work)
            writer.start(ask(call_id=call, on_resume=policy))

    async def _work(self, call: str) -> str:
        self.runs[call] += 1
        return call

    async def _work_for_ever(self, call: str) -> None:
        self.runs[call] += 1
        await asyncio.Event().wait()

    def _attempts(self, call: str) -> int:
        known = [*self.facts, *self.owed]
        return sum(fact[:2] == ("tool_call", call) for fact in known)

    def _log(self) -> list[Fact]:
        observer = self.bench.observer
        events = observer.run(stored(observer.log, self.id))
        assert chain_is_whole(events)
        return [fact for event in events if (fact := _fact(event)) is not None]


def _note(note: Fact) -> tuple[str, str]:
    return note[0], note[1]


def _result(call_id: str, outcome: str) -> Fact:
    return ("tool_result", call_id, outcome)


def _fact(event: Event) -> Fact | None:
    said = event.payload
    match event.type:
        case "note":
            return ("note", said)
        case "tool_call":
            return ("tool_call", said["call_id"], str(said.get("attempt", 1)))
        case "tool_result":
            return _result(said["call_id"], said.get("outcome", "ok"))
        case "decision_made":
            return ("decision_made", said["call"]["call_id"], said["ruling"])
        case "decision_requested":
            return ("decision_requested", said["call"]["call_id"])
        case _:
            return None


def live(bench: Bench, *, lives: int, steps: int) -> None:
    """So many random lives of so many steps each."""
    life: Any = functools.partial(Life, bench)  # any callable that makes one will do
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=lives,
            stateful_step_count=steps,
            deadline=None,
            phases=[Phase.generate],  # a shorter story would take minutes: each step is real
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.timeout(180)  # 25 lives take 30 s on two busy cores
def test_whatever_happens_to_a_session_its_log_is_what_was_acked(bench: Bench) -> None:
    live(bench, lives=25, steps=25)


@pytest.mark.soak
@pytest.mark.timeout(7_200)  # 200 lives of 60 steps, 4 s each on busy cores
def test_whatever_happens_to_many_sessions_their_logs_are_what_was_acked(bench: Bench) -> None:
    live(bench, lives=200, steps=60)
