"""Names on the bus: what is refused, where a session lives, how ids are minted."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.errors import InvalidName
from flightlog.wire import subject

BAD = [
    "",
    " ",
    "a.b",
    "a*",
    ">",
    "a:b",
    "a@b",
    "a b",
    "a\nb",
    "a\n",
    "ü",
    "x" * 65,
    "x" * 300,
    "a/b",
]


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("what", ["tenant", "session id"])
def test_a_bad_tenant_or_session_id_is_refused_without_being_repeated(what: str, text: str) -> None:
    with pytest.raises(InvalidName, match=f"^{what} .*1 to 64 of") as refused:
        subject.token(what, text)
    assert len(text.strip()) < 3 or text not in str(refused.value)
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("thing", [None, 7, b"abc", ["a"]])
def test_what_is_no_text_is_refused_too(thing: object) -> None:
    with pytest.raises(InvalidName):
        subject.token("tenant", thing)


@pytest.mark.parametrize("text", ["a", "A-Z_09", "x" * 64, "-", "_"])
def test_a_good_name_is_returned_as_it_is(text: str) -> None:
    assert subject.token("tenant", text) == text


def test_a_minted_id_is_a_uuid_of_version_7_and_sorts_by_time() -> None:
    before = time.time_ns() // 1_000_000
    first = subject.mint()
    while time.time_ns() // 1_000_000 <= int(first[5:17], 16):
        pass
    second = subject.mint()
    after = time.time_ns() // 1_000_000
    assert re.fullmatch(r"sess_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", first)
    assert first < second
    assert before <= int(first[5:17], 16) < int(second[5:17], 16) <= after
    assert subject.token("session id", first) == first


def test_minted_ids_do_not_repeat() -> None:
    assert len({subject.mint() for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    ("text", "hashed"),
    # The published test vectors of 32-bit FNV-1a (draft-eastlake-fnv, appendix C).
    [("", 0x811C9DC5), ("a", 0xE40C292C), ("b", 0xE70C2DE5), ("foobar", 0xBF9CF968)],
)
def test_a_slot_is_fnv1a_modulo_64(text: str, hashed: int) -> None:
    assert subject.slot(text) == hashed % 64


def test_slots_are_used_evenly_by_minted_ids() -> None:
    counts = [0] * subject.SLOTS
    for _ in range(6_400):
        counts[subject.slot(subject.mint())] += 1
    assert min(counts) > 40
    assert max(counts) < 180


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), st.sampled_from(["base", "live"]))
def test_a_log_subject_is_parsed_back(session: str, part: str) -> None:
    for prefix in (subject.PREFIX, "other.prefix.v9"):
        text = subject.log_subject("acme", session, part, prefix=prefix)
        assert text == f"{prefix}.{subject.slot(session)}.acme.{session}.{part}"
        assert subject.parse_log_subject(text, prefix=prefix) == ("acme", session, part)


@pytest.mark.parametrize(
    "text",
    [
        "flightlog.v1.inbox.acme.s.1",
        "flightlog.v1.notice.acme.s",
        "flightlog.v1.3.acme.s.dead",
        "flightlog.v1.3.acme.s.live.more",
        "other.3.acme.s.live",
        "",
    ],
)
def test_other_subjects_are_no_log(text: str) -> None:
    assert subject.parse_log_subject(text) is None


def test_the_subjects_beside_the_log_are_those_of_the_wire_contract() -> None:
    assert subject.inbox_subject("acme", "s", "*") == "flightlog.v1.inbox.acme.s.*"
    assert subject.notice_subject("acme", "s") == "flightlog.v1.notice.acme.s"
    assert subject.alive_subject("acme") == "flightlog.v1.alive.acme"
    assert subject.progress_subject("acme", "s") == "flightlog.v1.progress.acme.s"


@given(st.text(alphabet=st.characters(codec=None, categories=None)))
def test_any_text_works_as_a_key(key: str) -> None:
    text = subject.key_subject("acme", key)
    assert re.fullmatch(r"\$KV\.FLIGHTLOG_keys\.acme\.[A-Z2-7]{52}", text)


def test_keys_that_differ_live_apart_and_equal_keys_together() -> None:
    keys = ["", " ", "a", "a ", "ä", "a\u0308", "nightly/1", "x" * 300, "\ud800", "*", ">"]
    assert len({subject.key_subject("acme", key) for key in keys}) == len(keys)
    assert subject.key_subject("acme", "nightly") == (
        "$KV.FLIGHTLOG_keys.acme.FI5WFNJ53OPRM63D2IRAFI3AQEN2PDPQCUBB64CNAHXJVOWUC2OA"
    )


@pytest.mark.parametrize(
    ("pattern", "said_on", "is_heard"),
    [
        ("a.b", "a.b", True),
        ("a.*", "a.b", True),
        ("a.*.c", "a.b.c", True),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("a.>", "a", False),
        ("a.*", "a.b.c", False),
        ("a.b", "a.c", False),
        ("a.b", "a", False),
        ("*.b.>", "a.c.d", False),
    ],
)
def test_a_subscription_is_to_hear_what_its_pattern_says(
    pattern: str, said_on: str, is_heard: bool
) -> None:
    assert subject.matches(pattern, said_on) is is_heard
