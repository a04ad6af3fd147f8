"""The gate for a deployment: a projection that is not what it was is found at its first event."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from flightlog import Event, InvalidValue, Log, connect
from flightlog import event as events
from flightlog.snapshot import SESSION
from flightlog_recorder.embedded import Servers
from flightlog_recorder.replay.check import Checked, check
from flightlog_recorder.replay.projection import BadProjection, load
from flightlog_recorder.replay.recording import BadRecording, Recorder, Recording
from tests.recorder.command import Command, flightlog
from tests.recorder.recorded import talk
from tests.scripted import TENANT

GOLDEN = Path(__file__).parents[1] / "golden" / "events-v1.jsonl"


class Counter:
    """A harness' own projection: how often each type came, and which tools ran."""

    name = "counter"
    version = 1

    def initial(self) -> dict[str, Any]:
        return {"seq": 0, "types": {}, "tools": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.seq <= state["seq"]:
            return state
        types = {**state["types"], event.type: state["types"].get(event.type, 0) + 1}
        tools = [*state["tools"], *self.tools(event)]
        return {"seq": event.seq, "types": types, "tools": tools}

    def tools(self, event: Event) -> list[str]:
        return [event.payload["name"]] if event.type == "tool_call" else []

    def encode(self, state: dict[str, Any]) -> bytes:
        return json.dumps(state, sort_keys=True).encode()

    def decode(self, raw: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(raw)
        return found


class Shouting(Counter):
    """The same, with another rule for one tool."""

    def tools(self, event: Event) -> list[str]:
        return [name.upper() if name == "rm" else name for name in super().tools(event)]


class Raising(Counter):
    """It does not know every event."""

    def tools(self, event: Event) -> list[str]:
        if event.type == "session_suspended":
            raise KeyError(event.type)
        return super().tools(event)


class Changing(Counter):
    """It writes into the state that it was given."""

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.seq == 5:
            state["types"]["tampered"] = 1
        return super().apply(state, event)


class Twice(Counter):
    """It counts an event that it has seen."""

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return super().apply({**state, "seq": 0} if event.seq == 6 else state, event)


class Forgetful(Counter):
    """What it writes is less than what it knows."""

    def decode(self, raw: bytes) -> dict[str, Any]:
        return {**super().decode(raw), "tools": []}


def recorded() -> list[Event]:
    found = [events.decode(line) for line in GOLDEN.read_bytes().splitlines()]
    return [each for each in found if isinstance(each, Event)]


async def log_of(*, length: int | None = None) -> AsyncIterator[Event]:
    for event in recorded()[:length]:
        yield event


async def run(projection: Any, **options: Any) -> Checked:
    return await check("s", log_of(), projection, **options)


@pytest.mark.parametrize("projection", [SESSION, Counter()])
async def test_a_projection_that_keeps_its_promises_passes(projection: Any) -> None:
    assert await run(projection) == Checked("s", 39, 0)


@pytest.mark.parametrize(
    ("projection", "seq", "why"),
    [
        (Raising(), 12, "it raises KeyError"),
        (Changing(), 5, "apply changes the older state"),
        (Twice(), 6, "already changes it"),
        (Forgetful(), 8, "written and read goes on to another one"),
    ],
)
async def test_a_broken_promise_is_found_at_its_first_event(
    projection: Any, seq: int, why: str
) -> None:
    found = (await run(projection)).divergence
    assert found is not None
    assert (found.seq, why in found.why) == (seq, True)


async def test_two_implementations_part_where_their_rules_do() -> None:
    assert (await run(Counter(), against=Counter())).compared == 39
    found = (await run(Shouting(), against=Counter())).divergence
    assert found is not None
    assert (found.seq, found.type, found.why) == (9, "tool_call", "another state")
    [change] = found.changes
    assert (change.path, change.old, change.new) == (("tools", 1), "rm", "RM")


async def test_states_recorded_earlier_are_what_the_new_code_must_give(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    with path.open("wb") as file:
        assert (await run(Counter(), recorder=Recorder(file))).divergence is None
    recording = Recording(path)
    assert ("s" in recording, "t" in recording) == (True, False)
    assert await run(Counter(), against=recording) == Checked("s", 39, 39)
    found = (await run(Shouting(), against=recording)).divergence
    assert found is not None
    assert (found.seq, [(c.old, c.new) for c in found.changes]) == (9, [("rm", "RM")])


async def test_a_recording_gives_back_every_state_of_every_session(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    with path.open("wb") as file:
        recorder = Recorder(file)
        await check("one", log_of(), SESSION, recorder=recorder)
        await check("two", log_of(length=9), SESSION, recorder=recorder)
    recording = Recording(path)
    for session, length in (("one", 39), ("two", 9)):
        state = SESSION.initial()
        lines = list(recording.states(session))
        assert len(lines) == length
        for event, (line, value) in zip(recorded(), lines, strict=False):
            state = SESSION.apply(state, event)
            assert (line.seq, value) == (event.seq, json.loads(SESSION.encode(state)))


async def test_a_log_that_has_grown_is_compared_as_far_as_it_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    with path.open("wb") as file:
        await check("s", log_of(length=20), Counter(), recorder=Recorder(file))
    assert await run(Counter(), against=Recording(path)) == Checked("s", 39, 20)


def test_a_file_that_is_no_recording_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    path.write_text('{"session":"s","seq":1,"digest":"ab"}\nhello\n')
    with pytest.raises(BadRecording, match=r"states\.jsonl .* line 2"):
        Recording(path)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing", InvalidValue),
        ("no_such_module:X", BadProjection),
        ("json:nothing", BadProjection),
        ("json:dumps", BadProjection),
    ],
)
def test_what_is_no_projection_is_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        load(name)


OLD = """
import json

class Tools:
    name, version = "tools", 1
    def initial(self): return {"seq": 0, "tools": []}
    def apply(self, state, event):
        if event.seq <= state["seq"]:
            return state
        ran = [event.payload["name"]] if event.type == "tool_call" else []
        return {"seq": event.seq, "tools": state["tools"] + ran}
    def encode(self, state): return json.dumps(state).encode()
    def decode(self, raw): return json.loads(raw)
"""


@pytest.mark.timeout(60)  # every command is a process of its own
async def test_the_gate_stops_a_harness_whose_reducer_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OLD)
    (tmp_path / "yours.py").write_text(OLD.replace('["name"]]', '["name"].title()]'))
    command = Command({"PYTHONPATH": str(Path(__file__).parents[2])})
    check = ("replay", "--file", str(GOLDEN), "--check")
    ran = await command(*check, "mine:Tools", "--record", "states.jsonl")
    assert (ran.code, "39 events" in ran.out) == (0, True), ran.err
    assert (await command(*check, "mine:Tools", "--against", "states.jsonl")).code == 0
    ran = await command(*check, "yours:Tools", "--against", "states.jsonl")
    assert (ran.code, "at seq 7 (tool_call)" in ran.out) == (1, True)
    assert '+ tools[0]: "Ls"' in ran.out or '~ tools[0]: "ls" -> "Ls"' in ran.out
    ran = await command(*check, "yours:Tools", "--against", "mine:Tools", "--json")
    assert (ran.code, ran.json["divergence"]["seq"]) == (1, 7)
    ran = await command(*check, "mine:Tools", "--record", "states.jsonl")
    assert (ran.code, "never overwritten" in ran.err) == (2, True)
    ran = await command("replay", "--file", str(GOLDEN), "--record", "x.jsonl")
    assert (ran.code, "go with --check" in ran.err) == (2, True)


@pytest.mark.timeout(60)  # every command is a process of its own
@pytest.mark.parametrize("recorded", ["", '{"session":"another","seq":1,"digest":"00"}\n'])
async def test_nothing_passes_that_was_compared_with_nothing(tmp_path: Path, recorded: str) -> None:
    against = tmp_path / "states.jsonl"
    against.write_text(recorded)
    check = ("replay", "--file", str(GOLDEN), "--check", "session", "--against", str(against))
    ran = await Command({})(*check)
    assert (ran.code, "nothing was compared" in ran.err) == (1, True)


@pytest.mark.timeout(60)  # every command is a process of its own
async def test_nothing_passes_of_which_a_part_was_not_read(tmp_path: Path) -> None:
    command, path = Command({}), tmp_path / "s.jsonl"
    check = ("replay", "--file", str(path), "--check", "session")
    lines = GOLDEN.read_bytes().splitlines(keepends=True)
    blobs = b'{"v":1,"type":"blob","frame":"%s"}\n' % (b"A" * 700_000) * 3
    path.write_bytes(blobs + b"".join(lines))
    ran = await command(*check)
    assert (ran.code, "39 events" in ran.out) == (0, True), ran.err
    assert (await command(*check, "--until", "0")).code == 2
    for damaged, read in ((blobs + b"".join(lines[1:]), 0), (b"".join(lines[:5] + lines[6:]), 5)):
        path.write_bytes(damaged)
        ran = await command(*check)
        assert (ran.code, "ok" in ran.out, f"{read} events" in ran.out) == (1, False, True)
        assert f"damaged after seq {read}" in ran.err
        assert (await command(*check, "--json")).json["damage"]


@pytest.fixture
async def log(servers: Servers) -> AsyncIterator[Log]:
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        yield log


@pytest.mark.timeout(60)  # every command is a process of its own
async def test_all_sessions_of_a_tenant_are_checked(servers: Servers, log: Log) -> None:
    found = {await talk(log), await talk(log)}
    ran = await flightlog(servers)("replay", "--all", "--check", "session", "--json")
    assert ran.code == 0, ran.err
    assert {line["session"] for line in ran.lines} == found
    assert {line["divergence"] for line in ran.lines} == {None}
