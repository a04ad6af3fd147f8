"""`flightlog import codex`: what becomes of each file, in words and as JSON."""

from pathlib import Path

import pytest

from flightlog import AwaitUser, connect
from flightlog_recorder.embedded import Servers
from tests.recorder.command import flightlog
from tests.recorder.rollouts import DATA, REAL, SHARED
from tests.scripted import TENANT, Model, types

pytestmark = pytest.mark.timeout(60)  # every command is a process of its own

CHAT = {"choices": [{"message": {"role": "assistant", "content": "bye"}, "finish_reason": "stop"}]}


async def test_a_file_becomes_a_session_once_and_a_grown_one_names_it(
    servers: Servers, tmp_path: Path
) -> None:
    command = flightlog(servers)
    whole = (DATA / "tools.jsonl").read_bytes()
    file = tmp_path / "rollout.jsonl"
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:20]))
    [made] = (await command("import", "codex", str(file), "--json", "--label", "team=a")).lines
    [found] = (await command("import", "codex", str(file), "--json")).lines
    assert (made["made"], found["made"]) == ("new", "was there")
    assert made["session"] == found["session"]
    file.write_bytes(whole)
    [grown] = (await command("import", "codex", str(file), "--json")).lines
    assert (grown["made"], grown["earlier"]) == ("new", made["session"])
    async with connect(nats=servers.nats_url, tenant=TENANT) as log:
        state = await log.state(grown["session"])
        assert state.labels["source"] == "codex"
        assert len(await types(log, grown["session"])) == grown["events"]


async def test_a_fork_says_that_its_file_repeats_tokens_of_another(servers: Servers) -> None:
    ran = await flightlog(servers)("import", "codex", str(DATA / "fork.jsonl"))
    assert "a fork of 0199-parent: tokens that the file repeats count in both" in ran.out
    alone = await flightlog(servers)("import", "codex", str(DATA / "flat.jsonl"))
    assert "a fork of" not in alone.out


async def test_an_import_is_opened_and_continued_like_any_session(servers: Servers) -> None:
    ran = await flightlog(servers)("import", "codex", str(DATA / "rollback.jsonl"), "--json")
    session = ran.lines[0]["session"]
    async with (
        connect(nats=servers.nats_url, tenant=TENANT) as log,
        log.session(id=session, harness_version="test/1") as s,
    ):
        assert s.state.next == AwaitUser()
        await s.user_message("Thanks.")
        messages = s.state.messages("openai-chat")
        assert messages[-2]["content"] == "Mergesort is there."
        request = {"model": "m", "messages": messages}
        await s.model_call(request, call=Model(CHAT), provider="openai-chat")
        assert s.state.messages()[-1]["content"] == "bye"


async def test_transcripts_of_others_are_refused_in_one_line(servers: Servers) -> None:
    foreign = DATA.parent / "parallel.jsonl"
    ran = await flightlog(servers)("import", "codex", str(foreign), str(DATA / "flat.jsonl"))
    assert (ran.code, ran.out.count("imported  ")) == (1, 1)
    assert ran.err == (
        f"flightlog: {foreign} cannot be imported: none of its lines is of a type that Codex "
        "writes; nothing was written\n"
    )


@pytest.mark.skipif(not REAL, reason=f"real rollouts are not here: {SHARED.parent.name}/codex")
async def test_real_rollouts_become_sessions_that_verify(servers: Servers) -> None:
    command = flightlog(servers)
    ran = await command("import", "codex", *map(str, REAL), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert all(line["report"]["balanced"] for line in ran.lines)
    verified = await command("verify", "--all", "--json")
    *_, summary = verified.lines
    assert verified.code == 0
    assert summary["summary"]["sessions"] == len({line["session"] for line in ran.lines})
