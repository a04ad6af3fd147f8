"""Lines from strangers: everything comes out, read or as it is."""

import hashlib
from pathlib import Path

import pytest

from flightlog_recorder.importer.errors import BadTranscript
from flightlog_recorder.importer.source import (
    MAX_DEPTH,
    Line,
    Reading,
    grew_from,
    identify,
    parse,
    read_lines,
)


def parsed(raw: bytes, *, ended: bool = True, offset: int = 7) -> Reading:
    return parse(Line(1, offset, raw, ended))


def test_lines_and_their_offsets_put_the_file_together_again(tmp_path: Path) -> None:
    data = b'{"a":1}\n\n\xff\xfe\r\n{"b":2}'
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    lines = list(read_lines(path, upto=len(data)))
    assert b"".join(line.raw + b"\n" * line.ended for line in lines) == data
    assert [data[line.offset : line.offset + len(line.raw)] for line in lines] == [
        line.raw for line in lines
    ]
    assert [line.ended for line in lines] == [True, True, True, False]


def test_what_is_appended_while_we_read_is_left_for_the_next_import(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a":1}\n')
    file = identify(path)
    with path.open("ab") as growing:
        growing.write(b'{"b":2}\n')
    assert [line.raw for line in read_lines(path, upto=file.size)] == [b'{"a":1}']
    assert file.hash == hashlib.sha256(b'{"a":1}\n').hexdigest()


def test_a_file_that_has_grown_is_told_from_one_that_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a":1}\n')
    old = identify(path)
    path.write_bytes(b'{"a":1}\n{"b":2}\n')
    assert grew_from(path, size=old.size, hash=old.hash)
    path.write_bytes(b'{"a":2}\n{"b":2}\n')
    assert not grew_from(path, size=old.size, hash=old.hash)
    path.write_bytes(b"{")
    assert not grew_from(path, size=old.size, hash=old.hash)


def test_two_objects_on_a_line_are_both_read_and_noted() -> None:
    assert parsed(b'{"a":1}{"b":2} {"c":3}\r') == Reading(
        [{"a": 1}, {"b": 2}, {"c": 3}], notes=["it holds more than one object"]
    )


def test_blank_lines_hold_nothing_and_are_not_bad() -> None:
    assert parsed(b"") == parsed(b" \t\r") == Reading()


def test_a_byte_order_mark_is_only_taken_off_the_beginning_of_the_file() -> None:
    assert parsed(b'\xef\xbb\xbf{"a":1}', offset=0).objects == [{"a": 1}]
    assert parsed(b'\xef\xbb\xbf{"a":1}').bad


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"not json", "it is not JSON"),
        (b'{"a":1} trailing', "it is not JSON"),
        (b'{"a":"\xff"}', "it is not UTF-8"),
        (b'"massive error"', "it is JSON, but no object"),
        (b"[1]", "it is JSON, but no object"),
        (b'{"a":1}42', "it is JSON, but no object"),
        (b'{"a":1,"a":2}', "an object names a field twice"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "it is nested too deeply"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "it is nested too deeply"),
        (b'{"a":' + b"9" * 5000 + b"}", "it is not JSON"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(raw: bytes, why: str) -> None:
    assert parsed(raw) == Reading(bad=why)


def test_a_line_as_deep_as_we_carry_is_read() -> None:
    depth = MAX_DEPTH - 2
    assert parsed(b'{"a":' * depth + b"1" + b"}" * depth).bad is None


def test_a_last_line_without_its_end_is_said_to_be_cut_off() -> None:
    assert parsed(b'{"a":[1,', ended=False).bad == "it is cut off in the middle"
    assert parsed(b'{"a":1}', ended=False) == Reading([{"a": 1}])


def test_half_a_surrogate_pair_is_read_and_noted() -> None:
    reading = parsed(b'{"a":"\\ud83d"}')
    assert reading.objects == [{"a": "\ud83d"}]
    assert reading.notes == ["it holds half a surrogate pair; the text is carried marked"]
    assert not parsed(b'{"a":"\\ud83d\\ude00"}').notes


def test_what_is_no_readable_file_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path, why in [
        (tmp_path, "a directory"),
        (tmp_path / "absent", "no such file"),
        (tmp_path / "empty", "it is empty"),
        (tmp_path / "empty" / "below", "cannot be read"),
    ]:
        with pytest.raises(BadTranscript, match=why):
            identify(path)
