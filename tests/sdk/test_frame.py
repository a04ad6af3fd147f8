"""Frames are what nats-py would have written, and nothing in them can end a line early."""

import pytest
from nats.protocol.command import hpub_cmd, pub_cmd

from flightlog.bus.frame import header_block, publication


def test_a_frame_is_what_nats_py_writes() -> None:
    assert publication("a.b", b"body", reply=b"inbox.1") == pub_cmd("a.b", "inbox.1", b"body")
    headers = header_block({"Flightlog-Seq": "1", "Flightlog-Type": "nöte"})
    assert headers == "NATS/1.0\r\nFlightlog-Seq: 1\r\nFlightlog-Type: nöte\r\n\r\n".encode()
    framed = publication("a.b", b"body", headers=headers, reply=b"inbox.1")
    assert framed == hpub_cmd("a.b", "inbox.1", headers, b"body")


@pytest.mark.parametrize("value", ["a\r\nNats-Rollup: all", "a\nNats-Rollup: all", "a\rb", "\r\n"])
def test_a_line_break_in_a_value_makes_no_second_header(value: str) -> None:
    lines = header_block({"traceparent": value, "Flightlog-Seq": "1"}).split(b"\r\n")
    assert [line.partition(b": ")[0] for line in lines[1:3]] == [b"traceparent", b"Flightlog-Seq"]
    assert lines[3:] == [b"", b""]
    assert b"\n" not in b"".join(lines)
    assert b"\r" not in b"".join(lines)


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a\tb"])
def test_what_is_no_subject_is_never_written(subject: str) -> None:
    with pytest.raises(ValueError, match="a subject is not empty"):
        publication(subject, b"body")
