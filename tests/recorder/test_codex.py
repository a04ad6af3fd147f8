"""Codex rollouts, hand-made and real: what becomes of every line."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flightlog.wire import carry, payload
from flightlog_recorder.importer import BadTranscript, Draft, Imported, keys, read_codex
from flightlog_recorder.importer.codex_tokens import Tokens
from flightlog_recorder.importer.drafts import KEPT
from tests.recorder.rollouts import DATA, every_rollout

META = {"type": "session_meta", "payload": {"id": "0199-t", "cli_version": "0.140.0"}}


def body(draft: Draft) -> Any:
    return carry.unpack(draft.payload)


def bodies(imported: Imported, *types: str) -> list[Any]:
    return [body(draft) for draft in imported.drafts if draft.type in types]


def written(tmp_path: Path, *lines: dict[str, Any] | bytes) -> Path:
    path = tmp_path / "rollout.jsonl"
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return path


def item(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": type, **fields}}


def said(text: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}] if isinstance(text, str) else text
    return item("message", role=role, content=content, **fields)


def answered(text: str) -> dict[str, Any]:
    return said([{"type": "output_text", "text": text}], "assistant")


def call(id: Any, arguments: Any = "{}", **fields: Any) -> dict[str, Any]:
    return item("function_call", call_id=id, **{"name": "shell", "arguments": arguments, **fields})


def result(id: Any, output: Any = "ok") -> dict[str, Any]:
    return item("function_call_output", call_id=id, output=output)


def happened(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": type, **fields}}


def lines_of(draft: Draft) -> set[int]:
    source = body(draft).get("source", body(draft))
    return {source["line"]} | {line["line"] for line in source.get("lines", [])}


def leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for name, inner in value.items():
                yield from (name, *leaves(inner))
        case list():
            for inner in value:
                yield from leaves(inner)
        case str() | float() | int():
            yield str(value)
        case _:
            pass


@every_rollout
def test_every_line_is_an_event_or_counted_by_name(path: Path) -> None:
    imported = read_codex(path)
    report = imported.report
    raw = path.read_bytes().removesuffix(b"\n").split(b"\n")
    assert report.balanced
    assert report.lines == len(raw)
    assert report.blank == sum(not line.strip() for line in raw)
    assert sum(report.events.values()) == len(imported.drafts)
    with_events = set().union(*map(lines_of, imported.drafts))
    view_only = {n for n, line in enumerate(raw, 1) if line.strip()} - with_events
    assert len(view_only) == sum(report.view_only.values())


@every_rollout
def test_all_that_a_line_says_is_in_its_events(path: Path) -> None:
    by_line: dict[int, set[str]] = defaultdict(set)
    for draft in read_codex(path).drafts:
        for line in lines_of(draft):
            by_line[line].update(leaves([draft.type, body(draft)]))
    renamed = {"type", "payload", "content", "text", "input_text", "output_text", "input_image"}
    for number, text in enumerate(path.read_text().split("\n"), 1):
        if number in by_line and text.startswith("{"):
            assert set(leaves(json.loads(text))) - by_line[number] <= renamed, number


@every_rollout
def test_every_payload_fits_the_table_of_the_wire(path: Path) -> None:
    for draft in read_codex(path).drafts:
        known = not isinstance(payload.decode(draft.type, draft.payload), payload.Unknown)
        assert known != (draft.type == KEPT)


@every_rollout
def test_reading_twice_gives_the_same_bytes(path: Path) -> None:
    assert read_codex(path) == read_codex(path)


@every_rollout
def test_calls_and_results_point_back_at_what_they_answer(path: Path) -> None:
    imported = read_codex(path, first_seq=10)
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
                asked = [each["id"] for each in body(response)["message"]["tool_calls"]]
                assert body(draft)["call_id"] in asked
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


def test_the_items_of_one_answer_are_one_event_with_the_originals_beside_the_message() -> None:
    imported = read_codex(DATA / "tools.jsonl")
    first = bodies(imported, "model_response")[0]
    assert [each["type"] for each in first["items"]] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
    ]
    assert first["items"][0]["encrypted_content"] == "gAAAAABencrypted=="
    assert first["message"]["content"] == "I will look first."
    assert [each["id"] for each in first["message"]["tool_calls"]] == ["call_1", "call_2", "ls_1"]
    requests = bodies(imported, "model_request")
    assert {(each["provider"], each["model"]) for each in requests} == {("openai-chat", "gpt-x")}


def test_results_say_how_the_command_ended_and_how_long_it_took() -> None:
    results = bodies(read_codex(DATA / "tools.jsonl"), "tool_result")
    assert [(each["call_id"], each["outcome"], each.get("duration")) for each in results] == [
        ("call_1", "ok", 0.5),
        ("call_2", "error", 0.1),
        ("ls_1", "ok", None),
        ("call_3", "cancelled", None),
    ]


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        ("Exit code: 2\nWall time: 1 seconds\nOutput:\nno", "error"),
        ("Process exited with code 0\nOutput:\nExit code: 3", "ok"),
        ("the log says\nOutput:\nExit code: 3", "ok"),
        ({"content": "no", "success": False}, "error"),
        ({"content": "yes", "success": True}, "ok"),
        ('{"output":"x","metadata":{"exit_code":7}}', "error"),
        ('{"output":' + "[" * 9_000, "ok"),
        ("aborted", "cancelled"),
        (None, "ok"),
        ([{"type": "input_text", "text": "Exit code: 1"}], "error"),
    ],
)
def test_an_outcome_is_what_codex_says_of_the_call(
    tmp_path: Path, output: Any, outcome: str
) -> None:
    imported = read_codex(written(tmp_path, META, call("c"), result("c", output)))
    assert [each["outcome"] for each in bodies(imported, "tool_result")] == [outcome]


def test_what_codex_puts_in_a_persons_mouth_is_not_taken_for_a_person() -> None:
    origins = [each["origin"] for each in bodies(read_codex(DATA / "tools.jsonl"), "user_message")]
    assert origins == ["system", "system", "human", "system", "human"]
    fork = bodies(read_codex(DATA / "fork.jsonl"), "user_message")
    assert [each["origin"] for each in fork] == ["human", "peer"]


def test_an_event_that_repeats_an_item_is_for_viewers_and_any_other_is_kept(tmp_path: Path) -> None:
    echo, alone = happened("user_message", message="hi"), happened("user_message", message="alone")
    imported = read_codex(written(tmp_path, META, said("hi"), echo, alone))
    assert imported.report.view_only == {"event_msg/user_message": 1}
    assert [each["kind"] for each in bodies(imported, KEPT)] == [
        "session_meta",
        "event_msg/user_message",
    ]


def test_running_totals_that_repeat_are_counted_once() -> None:
    imported = read_codex(DATA / "tools.jsonl")
    usage = [each["usage"] for each in bodies(imported, "model_response")]
    assert [each["output_tokens"] for each in usage] == [20, 30, 10]
    assert imported.report.usage.input_total == 450
    assert imported.report.usage.cache_read_tokens == 300
    assert imported.report.view_only["event_msg/token_count"] == 2


def test_tokens_that_no_answer_in_the_file_used_are_those_of_a_side_call() -> None:
    imported = read_codex(DATA / "compaction.jsonl")
    asked = [each["purpose"] for each in bodies(imported, "model_request")]
    assert asked.count("side") == 1
    assert imported.report.usage.output_tokens == 22


def test_a_fork_that_repeats_its_parents_counts_counts_each_token_once() -> None:
    tokens = Tokens()
    parent = [{"total_token_usage": {"input_tokens": n, "output_tokens": n}} for n in (10, 30)]
    own = {"total_token_usage": {"input_tokens": 45, "output_tokens": 45}}
    counts = [*parent, *parent[1:], parent[-1], own, own]
    used = [found["output_tokens"] for each in counts if (found := tokens.take(each))]
    assert used == [10, 20, 15]


def test_totals_that_fall_begin_anew() -> None:
    tokens = Tokens()
    assert tokens.take({"total_token_usage": {"input_tokens": 100, "output_tokens": 9}})
    last = {"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 1}
    again = tokens.take({"total_token_usage": {"input_tokens": 50}, "last_token_usage": last})
    assert again is not None
    assert (again["input_tokens"], again["cache_read_input_tokens"]) == (5, 2)
    assert tokens.take({"total_token_usage": {"input_tokens": -1, "output_tokens": "x"}}) is None
    assert tokens.take(None) is None
    assert tokens.take(["garbage"]) is None


def test_a_compaction_keeps_its_encrypted_summary_and_leaves_the_messages() -> None:
    first = bodies(read_codex(DATA / "compaction.jsonl", first_seq=100), "compact")[0]
    assert [each["role"] for each in first["rest"]] == ["user", "user", "assistant", "user", "user"]
    kept = first["source"]["item"]["replacement_history"][-1]
    assert kept == {"type": "compaction", "encrypted_content": "gAAAAABsummary=="}


def test_a_rollback_names_the_event_its_first_turn_began_with() -> None:
    imported = read_codex(DATA / "rollback.jsonl", first_seq=1)
    (rewind,) = bodies(imported, "rewind")
    assert rewind["turns"] == 2
    # what was injected for the turn goes with it
    begun = body(imported.drafts[rewind["to"] - 1])
    assert begun["content"] == "<environment_context>later</environment_context>"


def test_a_rollback_of_more_turns_than_there_are_takes_all_and_is_flagged(tmp_path: Path) -> None:
    back = happened("thread_rolled_back", num_turns=9)
    path = written(tmp_path, META, back, said("one"), answered("1"), said("two"), back)
    imported = read_codex(path)
    assert [each["to"] for each in bodies(imported, "rewind")] == [4]
    assert [flag.line for flag in imported.report.flagged] == [2, 6]


def test_the_first_session_meta_names_the_session_and_the_parents_is_kept() -> None:
    imported = read_codex(DATA / "fork.jsonl")
    assert imported.source_id == "0199-child"
    assert imported.labels == {
        "source": "codex",
        "cwd": "/tmp/repo",
        "branch": "main",
        "forked_from": "0199-parent",
    }
    assert [each["kind"] for each in bodies(imported, KEPT)][:2] == ["session_meta"] * 2
    assert imported.report.repeated == 1


def test_a_call_id_that_comes_again_in_another_answer_is_another_call() -> None:
    imported = read_codex(DATA / "fork.jsonl")
    calls = bodies(imported, "tool_call")
    assert [(each["call_id"], each["name"]) for each in calls] == [
        ("call_0", "mcp__docs__search"),
        ("call_0", "search"),
        ("call_9", "shell"),
    ]
    results = bodies(imported, "tool_result")
    assert [(each["outcome"], each["output"]) for each in results] == [
        ("error", "nothing"),
        ("ok", "found"),
        ("ok", "lost"),
    ]
    assert [(flag.line, flag.why) for flag in imported.report.flagged] == [
        (14, "a second result of one tool call"),
        (15, "a tool result without a call"),
        (19, "a tool call without a result"),
    ]


def test_lines_from_before_there_were_envelopes_are_read() -> None:
    imported = read_codex(DATA / "flat.jsonl")
    assert imported.source_id == "0199-flat"
    assert [draft.type for draft in imported.drafts] == [
        KEPT,
        KEPT,
        "user_message",
        "model_request",
        "model_response",
        "tool_call",
        KEPT,
        "tool_result",
        "model_request",
        "model_response",
    ]


def test_an_error_is_an_answer_with_an_error() -> None:
    errors = [
        each.get("error") for each in bodies(read_codex(DATA / "fork.jsonl"), "model_response")
    ]
    assert [each for each in errors if each] == ["stream disconnected"]


def test_a_second_call_of_one_id_in_one_answer_is_kept_and_flagged(tmp_path: Path) -> None:
    imported = read_codex(written(tmp_path, META, call("c"), call("c", '{"n":2}')))
    assert imported.report.events["tool_call"] == 1
    assert "same id" in imported.report.flagged[0].why


def test_a_result_that_stands_before_its_call_waits_for_it(tmp_path: Path) -> None:
    imported = read_codex(written(tmp_path, META, said("hi"), result("c"), call("c")))
    assert [draft.type for draft in imported.drafts][-2:] == ["tool_call", "tool_result"]
    assert not imported.report.flagged


def test_a_searches_for_tools_by_the_provider_itself_is_no_call_of_ours(tmp_path: Path) -> None:
    search = item("tool_search_call", execution="server", call_id=None, arguments={})
    found = item("tool_search_output", execution="server", call_id=None, tools=[])
    imported = read_codex(written(tmp_path, META, search, found, answered("so")))
    assert [draft.type for draft in imported.drafts][1:] == ["model_request", "model_response"]


def test_what_one_message_cannot_hold_is_shortened_in_place_and_whole_in_pieces(
    tmp_path: Path,
) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 700}
    path = written(tmp_path, META, said([image] * 1_800), said("b"))  # none is worth a blob
    whole = read_codex(path, limit=10_000_000).drafts[1].payload
    imported = read_codex(path)
    assert imported.report.largest <= 1_000_000
    parts = [each for each in bodies(imported, KEPT) if each["kind"] == "piece"]
    assert b"".join(part["raw"] for part in parts) == bytes(whole)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\xff\xfe\x00garbage", "it is not UTF-8"),
        (b"\x00\x00\x00", "it is not JSON"),
        (b"[1]", "it is JSON, but no object"),
        (b'{"silly":"this"}', "it has no type"),
        (b'{"type":"response_item","payload":"?"}', "its payload cannot be read"),
        (b'{"type":"compacted"}', "its payload cannot be read"),
        (
            b'{"type":"compacted","payload":{"replacement_history":["x"]}}',
            "its replacement history cannot be read",
        ),
        (b'{"type":"response_item","payload":{"type":"message"}}', "its role cannot be read"),
        (
            b'{"type":"response_item","payload":{"type":"message","role":"user","content":[1]}}',
            "its content cannot be read",
        ),
        (
            b'{"type":"response_item","payload":{"type":"function_call","call_id":5}}',
            "a tool call has an id that is no text",
        ),
        (
            b'{"type":"response_item","payload":{"type":"function_call_output","call_id":5}}',
            "a tool result names its call by an id that is no text",
        ),
        (
            b'{"type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":"2"}}',
            "its number of turns cannot be read",
        ),
    ],
)
def test_a_bad_line_is_kept_raw_and_flagged_between_good_ones(
    tmp_path: Path, bad: bytes, why: str
) -> None:
    imported = read_codex(written(tmp_path, META, said("one"), bad, said("two")))
    assert [(flag.line, flag.why) for flag in imported.report.flagged] == [(3, why)]
    assert [each["content"] for each in bodies(imported, "user_message")] == ["one", "two"]
    kept = bodies(imported, KEPT)[-1]
    assert (kept["line"], kept["why"]) == (3, why)
    raw = kept.get("raw")
    assert (
        kept.get("record") == json.loads(bad) if raw is None else raw in (bad, bad.decode("latin1"))
    )
    assert imported.report.balanced
    assert imported.report.kept == 1


def test_a_rollout_that_breaks_off_keeps_its_last_piece(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes((DATA / "tools.jsonl").read_bytes()[:-40])
    imported = read_codex(path)
    assert imported.report.flagged[-1].why == "it is cut off in the middle"


def test_unknown_types_and_items_are_kept_whole_and_counted_by_name(tmp_path: Path) -> None:
    news, odd = {"type": "hologram", "payload": {"beam": [1, 2.5, None]}}, item("smell", of="rose")
    imported = read_codex(written(tmp_path, META, news, odd))
    assert imported.report.unknown == {"hologram": 1, "response_item/smell": 1}
    assert [each["record"] for each in bodies(imported, KEPT)[1:]] == [news, odd]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"\n\n", "no line of it is a JSON object"),
        (b"\x00\x01\x02" * 100, "no line of it is a JSON object"),
        (b'{"role":"user","content":"hi"}\n', "none of its lines is of a type"),
        (b'{"type":"user","uuid":"u","message":{"content":"hi"}}\n', "none of its lines is of"),
        (b'{"type":"response_item"}\n', "none of its lines is of a type"),
    ],
)
def test_what_is_no_rollout_is_refused_without_its_content(
    tmp_path: Path, data: bytes, why: str
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(data)
    with pytest.raises(BadTranscript, match=why):
        read_codex(path)


def test_a_file_that_has_grown_has_a_key_of_its_own_and_the_same_source(tmp_path: Path) -> None:
    before = keys(read_codex(written(tmp_path, META, said("hi"))))
    after = keys(read_codex(written(tmp_path, META, said("hi"), said("more"))))
    assert before.content != after.content
    assert before.source == after.source == "import:codex:0199-t"
