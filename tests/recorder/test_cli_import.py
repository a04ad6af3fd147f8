"""`flightlog import claude-code`: what becomes of each file, in words and as JSON."""

from pathlib import Path

import pytest

from flightlog import connect
from flightlog_recorder.embedded import Servers
from tests.recorder.command import flightlog
from tests.scripted import TENANT, types

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[3] / "shared" / "samples" / "claude-code"


async def test_a_file_becomes_a_session_once(servers: Servers) -> None:
    command = flightlog(servers)
    file = str(DATA / "parallel.jsonl")
    first = await command("import", "claude-code", file, "--json", "--label", "team=a")
    again = await command("import", "claude-code", file, "--json")
    [made], [found] = first.lines, again.lines
    assert (first.code, made["made"], found["made"]) == (0, "new", "was there")
    assert made["session"] == found["session"]
    assert made["report"]["balanced"]
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        state = await log.state(made["session"])
        assert state.labels["team"] == "a"
        assert len(await types(log, made["session"])) == made["events"]


async def test_bad_files_are_one_line_each_and_the_others_are_imported(
    servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "text.jsonl").write_text("dear diary\n")
    bad = [tmp_path / "empty.jsonl", tmp_path / "text.jsonl", tmp_path, tmp_path / "nowhere.jsonl"]
    files = [*map(str, bad), str(DATA / "rewind.jsonl")]
    ran = await flightlog(servers)("import", "claude-code", *files)
    assert ran.code == 1
    assert ran.out.count("imported  ") == 1
    lines = ran.err.splitlines()
    assert len(lines) == len(bad)
    for line, path in zip(lines, bad, strict=True):
        assert line.startswith(f"flightlog: {path} cannot be imported: ")


async def test_a_truncated_file_is_imported_with_its_last_line_flagged(
    servers: Servers, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes((DATA / "parallel.jsonl").read_bytes()[:-20])
    ran = await flightlog(servers)("import", "claude-code", str(cut))
    assert ran.code == 0
    assert "1 unreadable, kept raw" in ran.out
    assert "it is cut off in the middle" in ran.out


async def test_a_key_is_taken_for_one_session(servers: Servers) -> None:
    command = flightlog(servers)
    one, other = str(DATA / "parallel.jsonl"), str(DATA / "rewind.jsonl")
    assert (await command("import", "claude-code", one, "--key", "mine: 1")).code == 0
    assert (await command("show", "mine: 1")).code == 0
    ran = await command("import", "claude-code", other, "--key", "mine: 1")
    assert (ran.code, ran.out) == (1, "")
    assert "give another one" in ran.err


@pytest.mark.skipif(not SHARED.is_dir(), reason="real transcripts are not here: ../shared/samples")
@pytest.mark.timeout(60)  # a process that reads, writes and verifies every sample
async def test_real_transcripts_become_sessions_that_verify(servers: Servers) -> None:
    command = flightlog(servers)
    files = [str(path) for path in sorted(SHARED.rglob("*.jsonl"))]
    ran = await command("import", "claude-code", *files, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert all(line["report"]["balanced"] for line in ran.lines)
    verified = await command("verify", "--all", "--json")
    *_, summary = verified.lines
    assert verified.code == 0
    assert summary["summary"]["sessions"] == len({line["session"] for line in ran.lines})
