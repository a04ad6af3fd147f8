"""Claude Code transcripts, hand-made and real: what becomes of every line."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flightlog.wire import carry, payload
from flightlog_recorder.importer import BadTranscript, Draft, Imported, keys, read_claude_code
from flightlog_recorder.importer.drafts import KEPT, timestamp

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[3] / "shared" / "samples" / "claude-code"
REAL = sorted(SHARED.rglob("*.jsonl"))
ABSENT = pytest.mark.skip(reason="real transcripts are not here: ../shared/samples/claude-code")
SAMPLES: list[Any] = [*sorted(DATA.glob("*.jsonl")), *REAL]

every_transcript = pytest.mark.parametrize(
    "path",
    SAMPLES if REAL else [*SAMPLES, pytest.param(SHARED, marks=ABSENT)],
    ids=lambda p: p.stem,
)


def body(draft: Draft) -> Any:
    return carry.unpack(draft.payload)


def bodies(imported: Imported, *types: str) -> list[Any]:
    return [body(draft) for draft in imported.drafts if draft.type in types]


def written(tmp_path: Path, *lines: dict[str, Any] | bytes) -> Path:
    path = tmp_path / "transcript.jsonl"
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return path


def said(uuid: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": content}} | fields


def answered(uuid: str, id: str, *blocks: Any, **fields: Any) -> dict[str, Any]:
    message = {"id": id, "role": "assistant", "model": "m", "content": list(blocks)}
    return {
        "type": "assistant",
        "uuid": uuid,
        "message": message | fields.pop("message", {}),
    } | fields


def use(id: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {"n": 1}}


def result(id: str, content: str = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def lines_of(draft: Draft) -> set[int]:
    source = body(draft).get("source", body(draft))
    return {source["line"]} | {line["line"] for line in source.get("lines", [])}


def leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, item in value.items():
                yield from (name, *leaves(item))
        case list():
            for item in value:
                yield from leaves(item)
        case str() | float() | int():
            yield str(value)
        case _:
            pass


@every_transcript
def test_every_line_is_an_event_or_counted_by_name(path: Path) -> None:
    imported = read_claude_code(path)
    report = imported.report
    raw = path.read_bytes().removesuffix(b"\n").split(b"\n")
    assert report.balanced
    assert report.lines == len(raw)
    assert report.blank == sum(not line.strip() for line in raw)
    assert sum(report.events.values()) == len(imported.drafts)
    with_events = set().union(*map(lines_of, imported.drafts))
    view_only = {n for n, line in enumerate(raw, 1) if line.strip()} - with_events
    assert len(view_only) <= sum(report.view_only.values())


@every_transcript
def test_all_that_a_line_says_is_in_its_events(path: Path) -> None:
    by_line: dict[int, set[str]] = defaultdict(set)
    for draft in read_claude_code(path).drafts:
        for line in lines_of(draft):
            by_line[line].update(leaves([draft.type, body(draft)]))
    renamed = {"message", "role", "content", "toolUseResult", "tool_use_id", "is_error", "prompt"}
    implied = {"type", "user", "assistant", "tool_result", "False", "True"}
    for number, text in enumerate(path.read_text().split("\n"), 1):
        if number in by_line and text.startswith("{") and '}{"' not in text:
            assert set(leaves(json.loads(text))) - by_line[number] <= renamed | implied, number


@every_transcript
def test_every_payload_fits_the_table_of_the_wire(path: Path) -> None:
    for draft in read_claude_code(path).drafts:
        known = not isinstance(payload.decode(draft.type, draft.payload), payload.Unknown)
        assert known != (draft.type == KEPT)


@every_transcript
def test_reading_twice_gives_the_same_bytes(path: Path) -> None:
    assert read_claude_code(path) == read_claude_code(path)


@every_transcript
def test_calls_and_results_point_back_at_what_they_answer(path: Path) -> None:
    imported = read_claude_code(path, first_seq=10)
    open_calls: dict[int, str] = {}
    orphans = 0
    for index, draft in enumerate(imported.drafts):
        answers = imported.drafts[draft.parent] if draft.parent is not None else None
        assert draft.parent is None or draft.parent < index
        match draft.type:
            case "model_response":
                assert answers is not None
                assert answers.type == "model_request"
            case "tool_call":
                response = imported.drafts[body(draft)["announced_by"] - 10]
                uses = [b["id"] for b in body(response)["message"]["content"] if "id" in b]
                assert body(draft)["call_id"] in uses
                open_calls[index] = body(draft)["call_id"]
            case "tool_result" if draft.parent is not None:
                assert answers is not None
                assert body(answers)["announced_by"] == body(draft)["announced_by"]
                assert open_calls.pop(draft.parent) == body(draft)["call_id"]
            case "tool_result":
                orphans += 1
            case _:
                assert draft.parent is None
    assert imported.report.orphan_calls == len(open_calls)
    assert imported.report.orphan_results == orphans


@every_transcript
def test_tokens_are_the_last_ones_that_each_message_said(path: Path) -> None:
    last: dict[str, Any] = {}
    for line in path.read_text().replace('}{"', '}\n{"').splitlines():
        record = json.loads(line) if line else None
        if isinstance(record, dict) and record.get("type") == "assistant":
            usage = record["message"].get("usage")
            if usage and not record.get("isApiErrorMessage"):
                last[record["message"]["id"]] = usage
    usage = read_claude_code(path).report.usage
    assert usage.messages == len(last)
    assert usage.output_tokens == sum(u["output_tokens"] for u in last.values())
    assert usage.input_total == sum(
        u["input_tokens"]
        + u.get("cache_creation_input_tokens", 0)
        + u.get("cache_read_input_tokens", 0)
        for u in last.values()
    )


def test_a_message_of_several_lines_is_one_answer_at_the_place_of_its_first() -> None:
    imported = read_claude_code(DATA / "parallel.jsonl")
    assert [draft.type for draft in imported.drafts] == [
        "user_message",
        "model_request",
        "model_response",
        "tool_call",
        "tool_result",
        "user_message",
        "tool_call",
        "tool_result",
        "model_request",
        "model_response",
        KEPT,
    ]
    first = body(imported.drafts[2])
    assert [block["type"] for block in first["message"]["content"]] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert first["stop"] == "tool_use"
    assert first["usage"]["output_tokens"] == 57
    assert [line["line"] for line in first["source"]["lines"]] == [4, 5, 6, 10]
    assert imported.report.view_only == {
        "queue-operation": 1,
        "file-history-snapshot": 1,
        "progress": 1,
        "last-prompt": 1,
    }
    assert imported.report.rewound == 0


def test_a_cost_that_early_versions_wrote_beside_a_message_is_its_usages(tmp_path: Path) -> None:
    usage = {"input_tokens": 3, "output_tokens": 1}
    line = answered("a", "m1", {"type": "text", "text": "hi"}, costUSD=0.25)
    line["message"]["usage"] = usage
    imported = read_claude_code(written(tmp_path, said("u", "hi"), line))
    [answer] = bodies(imported, "model_response")
    assert answer["usage"] == {"cost": 0.25, **usage}


def test_results_keep_outcome_duration_and_the_structured_form() -> None:
    ok, failed = bodies(read_claude_code(DATA / "parallel.jsonl"), "tool_result")
    assert (ok["outcome"], ok["output"], ok["duration"]) == ("ok", "plan.md\n", 0.25)
    assert ok["structured"]["stdout"] == "plan.md\n"
    assert (failed["outcome"], failed["structured"]) == ("error", "Error: File does not exist.")


def test_what_a_person_typed_while_the_agent_worked_is_a_user_message() -> None:
    typed = bodies(read_claude_code(DATA / "parallel.jsonl"), "user_message")
    assert [(said["content"], said["origin"]) for said in typed] == [
        ("List the folder and read the plan.", "human"),
        ("and be quick", "human"),
    ]


def test_a_branch_that_was_left_stays_in_the_log_but_not_in_the_conversation() -> None:
    imported = read_claude_code(DATA / "rewind.jsonl")
    typed = [said["content"] for said in bodies(imported, "user_message")]
    assert typed == ["Sort this list.", "No, with mergesort."]
    purposes = [request["purpose"] for request in bodies(imported, "model_request")]
    assert purposes == ["main", "side", "side", "main"]
    assert [kept["kind"] for kept in bodies(imported, KEPT)] == ["rewound"]
    assert imported.report.rewound == 4
    assert imported.report.usage.messages == 4


def test_a_compaction_puts_its_summary_in_the_place_of_all_before_it() -> None:
    imported = read_claude_code(DATA / "compaction.jsonl", first_seq=100)
    at = next(i for i, draft in enumerate(imported.drafts) if draft.type == "compact")
    compact = body(imported.drafts[at])
    assert compact["keep_from"] == 100 + at
    assert compact["summary"].startswith("This session is being continued.")
    assert [said["content"] for said in bodies(imported, "user_message")] == ["Start.", "Thanks."]


def test_a_compaction_without_a_summary_still_ends_what_the_model_saw(tmp_path: Path) -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b",
        "content": "Compacted",
    }
    imported = read_claude_code(written(tmp_path, said("u", "hi"), boundary, said("v", "go on")))
    assert [draft.type for draft in imported.drafts] == ["user_message", "compact", "user_message"]
    assert bodies(imported, "compact")[0]["summary"] == "Compacted"


def test_a_sub_agent_written_inline_is_a_side_call() -> None:
    imported = read_claude_code(DATA / "sidechain.jsonl")
    purposes = [request["purpose"] for request in bodies(imported, "model_request")]
    assert purposes == ["main", "side", "side", "main", "main"]
    assert [said["content"] for said in bodies(imported, "user_message")] == ["Have a look around."]
    assert imported.report.side == 4
    assert imported.report.usage.messages == 4


def test_a_recorded_api_error_is_an_answer_with_an_error() -> None:
    errors = [
        r.get("error") for r in bodies(read_claude_code(DATA / "sidechain.jsonl"), "model_response")
    ]
    assert errors == [None, None, None, "API Error: 529 overloaded", None]


def test_the_file_of_a_sub_agent_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    lines = [
        said("u", "look", isSidechain=True, sessionId="s", agentId="ab1"),
        answered("a", "m1", {"type": "text", "text": "seen"}, isSidechain=True, agentId="ab1"),
    ]
    imported = read_claude_code(written(tmp_path, *lines))
    assert [draft.type for draft in imported.drafts] == [
        "user_message",
        "model_request",
        "model_response",
    ]
    assert imported.source_id == "s/agent-ab1"


def test_a_call_without_result_stays_open_and_is_never_run_by_who_opens_it() -> None:
    imported = read_claude_code(DATA / "sidechain.jsonl")
    assert imported.report.orphan_calls == 1
    call = bodies(imported, "tool_call")[-1]
    assert (call["call_id"], call["on_resume"]) == ("toolu_9", "fail")
    assert [(flag.line, flag.why) for flag in imported.report.flagged] == [
        (9, "a tool call without a result")
    ]


def test_a_result_without_call_stays_visible(tmp_path: Path) -> None:
    imported = read_claude_code(written(tmp_path, said("u", [result("toolu_x", "lost")])))
    assert imported.report.orphan_results == 1
    assert bodies(imported, "tool_result")[0]["output"] == "lost"
    assert imported.drafts[0].parent is None


def test_a_result_that_stands_before_its_call_waits_for_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, said("u", "hi"), said("r", [result("t1")]), answered("a", "m1", use("t1"))
    )
    imported = read_claude_code(path)
    assert [draft.type for draft in imported.drafts][-2:] == ["tool_call", "tool_result"]
    assert imported.drafts[-1].parent == len(imported.drafts) - 2
    assert not imported.report.flagged


def test_repeated_call_ids_find_the_call_that_their_line_names(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        answered("a", "m1", use("call_0")),
        answered("b", "m2", use("call_0", "Read")),
        said("s", [result("call_0", "of a")], sourceToolAssistantUUID="a"),
        said("r", [result("call_0", "of b")], sourceToolAssistantUUID="b"),
    )
    imported = read_claude_code(path)
    answers = {
        body(draft)["output"]: body(imported.drafts[draft.parent or 0])["name"]
        for draft in imported.drafts
        if draft.type == "tool_result"
    }
    assert answers == {"of b": "Read", "of a": "Bash"}


def test_parallel_calls_are_no_fork_though_their_results_share_a_parent(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        said("u", "go"),
        answered("a", "m1", use("t1"), use("t2"), parentUuid="u"),
        said("r", [result("t1")], parentUuid="a"),
        said("s", [result("t2")], parentUuid="a"),
        answered("b", "m2", {"type": "text", "text": "done"}, parentUuid="s"),
    )
    report = read_claude_code(path).report
    assert (report.rewound, report.orphan_calls) == (0, 0)
    assert report.events["tool_result"] == 2


def test_a_result_and_a_prompt_after_it_with_one_parent_are_no_fork(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        answered("a", "m1", use("t1")),
        said("r", [result("t1")], parentUuid="a"),
        said("u", "and then?", parentUuid="a"),
        said("v", "come on", parentUuid="u"),
    )
    imported = read_claude_code(path)
    assert imported.report.rewound == 0
    assert len(bodies(imported, "user_message")) == 2


def test_a_second_result_of_one_call_is_kept_and_flagged(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        answered("a", "m", use("t")),
        said("r", [result("t")]),
        said("s", [result("t", "2")]),
    )
    imported = read_claude_code(path)
    assert imported.report.events["tool_result"] == 1
    assert bodies(imported, KEPT)[0]["why"] == "a second result of one tool call"


def test_calls_without_ids_are_named_and_paired_by_their_line(tmp_path: Path) -> None:
    anonymous = {"type": "tool_use", "name": "Bash", "input": {}}
    path = written(
        tmp_path,
        answered("a", "m", anonymous),
        said("r", [{"type": "tool_result", "content": "ok"}], sourceToolAssistantUUID="a"),
    )
    imported = read_claude_code(path)
    assert bodies(imported, "tool_call")[0]["call_id"] == "import_1_0"
    assert bodies(imported, "tool_result")[0]["call_id"] == "import_1_0"
    assert bodies(imported, "model_response")[0]["message"]["content"][0]["id"] == "import_1_0"


def test_a_second_call_of_one_id_in_one_message_is_kept_and_flagged(tmp_path: Path) -> None:
    other = use("t", "Read")
    path = written(tmp_path, answered("a", "m", use("t")), answered("b", "m", other))
    imported = read_claude_code(path)
    assert imported.report.events["tool_call"] == 1
    assert bodies(imported, KEPT)[0]["record"]["uuid"] == "b"
    assert "same id" in imported.report.flagged[0].why


def test_what_one_message_cannot_hold_is_shortened_in_place_and_whole_in_pieces(
    tmp_path: Path,
) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "iVBO" * 400_000}}
    path = written(tmp_path, said("u", [image, {"type": "text", "text": "see"}]), said("v", "b"))
    whole = read_claude_code(path, limit=10_000_000).drafts[0].payload
    imported = read_claude_code(path)
    assert imported.report.largest <= 1_000_000
    shown, text = bodies(imported, "user_message")[0]["content"]
    assert (shown["type"], text["text"]) == ("image", "see")
    assert "characters left out" in shown["source"]["media_type"]
    parts = bodies(imported, KEPT)
    assert [(part["of"], part["part"], part["parts"]) for part in parts] == [
        (2, n, 3) for n in (1, 2, 3)
    ]
    assert b"".join(part["raw"] for part in parts) == bytes(whole)
    assert imported.drafts[1].type == "user_message"


def test_a_message_whose_lines_are_text_and_blocks_keeps_both(tmp_path: Path) -> None:
    plain = answered("a", "m", message={"content": "one"})
    lines = [plain, answered("b", "m", use("t")), plain | {"uuid": "c"}]
    imported = read_claude_code(written(tmp_path, *lines))
    (response,) = bodies(imported, "model_response")
    assert [block["type"] for block in response["message"]["content"]] == ["text", "tool_use"]


def test_history_that_was_copied_into_the_file_counts_once(tmp_path: Path) -> None:
    first = [said("u", "hi", sessionId="s1"), answered("a", "m", {"type": "text", "text": "yes"})]
    copy = [line | {"sessionId": "s2", "cwd": "/elsewhere"} for line in first]
    imported = read_claude_code(written(tmp_path, *first, *copy, said("v", "more", parentUuid="a")))
    assert [s["content"] for s in bodies(imported, "user_message")] == ["hi", "more"]
    assert imported.report.repeated == 2
    assert imported.report.events["model_response"] == 1
    assert [kept["kind"] for kept in bodies(imported, KEPT)] == ["repeat", "repeat"]


def test_one_uuid_with_two_contents_keeps_both_and_is_flagged(tmp_path: Path) -> None:
    imported = read_claude_code(written(tmp_path, said("u", "one"), said("u", "two")))
    assert [s["content"] for s in bodies(imported, "user_message")] == ["one", "two"]
    assert [flag.line for flag in imported.report.flagged] == [2]


def test_injected_and_machine_made_turns_are_not_taken_for_a_person(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        said("u", "typed", origin={"kind": "human"}),
        said("v", "caveat", isMeta=True),
        said("w", "task done", origin={"kind": "task-notification"}),
        said("x", "only shown", isVisibleInTranscriptOnly=True),
    )
    imported = read_claude_code(path)
    assert [s["origin"] for s in bodies(imported, "user_message")] == ["human", "system", "system"]
    assert [kept["kind"] for kept in bodies(imported, KEPT)] == ["user/hidden"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\xff\xfe\x00garbage", "it is not UTF-8"),
        (b"not json", "it is not JSON"),
        (b"[1]", "it is JSON, but no object"),
        (b'{"silly":"this"}', "it has no type"),
        (b'{"type":["user"]}', "it has no type"),
        (b'{"type":"user","message":"error"}', "its message cannot be read"),
        (b'{"type":"user","message":{"content":["wow"]}}', "its message cannot be read"),
        (b'{"type":"assistant","message":{"content":7}}', "its message cannot be read"),
        (
            b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":5}]}}',
            "a tool call has an id that is no text",
        ),
    ],
)
def test_a_bad_line_is_kept_raw_and_flagged_between_good_ones(
    tmp_path: Path, bad: bytes, why: str
) -> None:
    imported = read_claude_code(written(tmp_path, said("u", "one"), bad, said("v", "two")))
    assert [(flag.line, flag.why) for flag in imported.report.flagged] == [(2, why)]
    assert [s["content"] for s in bodies(imported, "user_message")] == ["one", "two"]
    (kept,) = bodies(imported, KEPT)
    assert (kept["line"], kept["why"]) == (2, why)
    raw = kept.get("raw")
    assert (
        kept.get("record") == json.loads(bad) if raw is None else raw in (bad, bad.decode("latin1"))
    )
    assert imported.report.balanced
    assert imported.report.kept == 1


def test_a_transcript_that_breaks_off_keeps_its_last_piece(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes((DATA / "parallel.jsonl").read_bytes()[:-40])
    imported = read_claude_code(path)
    assert imported.report.flagged[-1].why == "it is cut off in the middle"
    assert bodies(imported, KEPT)[-1]["raw"].startswith('{"type":"last-prompt"')


def test_an_unknown_type_is_kept_whole_and_counted_by_name(tmp_path: Path) -> None:
    news = {"type": "hologram", "uuid": "h", "data": {"beam": [1, 2.5, None]}}
    imported = read_claude_code(written(tmp_path, said("u", "hi"), news))
    assert imported.report.unknown == {"hologram": 1}
    assert bodies(imported, KEPT)[0]["record"] == news


@pytest.mark.parametrize("value", ["\ud83d", float("inf"), 2**80])
def test_what_json_cannot_carry_comes_back_equal(tmp_path: Path, value: Any) -> None:
    path = written(tmp_path, answered("a", "m", use("t") | {"input": {"odd": value}}))
    assert bodies(read_claude_code(path), "tool_call")[0]["arguments"] == {"odd": value}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"\n\n", "no line of it is a JSON object"),
        (b"\x00\x01\x02" * 100, "no line of it is a JSON object"),
        (b"<html>\n</html>\n", "no line of it is a JSON object"),
        (b'{"type":"session_meta","payload":{}}\n', "none of its lines is of a type"),
    ],
)
def test_what_is_no_transcript_is_refused_without_its_content(
    tmp_path: Path, data: bytes, why: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    with pytest.raises(BadTranscript, match=why):
        read_claude_code(path)


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTranscript, match="it is a directory"):
        read_claude_code(tmp_path)


def test_a_file_that_has_grown_has_a_key_of_its_own_and_the_same_source(tmp_path: Path) -> None:
    path = written(tmp_path, said("u", "hi", sessionId="s1"))
    before, again = keys(read_claude_code(path)), keys(read_claude_code(path))
    after = keys(
        read_claude_code(written(tmp_path, said("u", "hi", sessionId="s1"), said("v", "x")))
    )
    assert before == again
    assert before.content != after.content
    assert before.source == after.source == "import:claude-code:s1"


@pytest.mark.parametrize(
    ("value", "ts"),
    [
        ("2026-05-06T14:23:01.123Z", "2026-05-06T14:23:01.123000Z"),
        ("2026-05-06T16:23:01+02:00", "2026-05-06T14:23:01.000000Z"),
        ("2026-05-06T14:23:01", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("[trimmed]", None),
        (1778077381, None),
        (None, None),
    ],
)
def test_times_are_utc_with_microseconds_or_absent(value: object, ts: str | None) -> None:
    assert timestamp(value) == ts
