"""Rows: what they say of a state, which one wins, and under which names they are found."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog import state
from flightlog.cache import catalog
from flightlog.cache.catalog import Filter, Row
from tests.handmade import follow, takeover


def row(**fields: object) -> Row:
    return Row(**({"tenant": "acme", "session": "s"} | fields))  # type: ignore[arg-type]


def test_a_row_says_what_the_state_says() -> None:
    started = takeover(None, 1)
    said = follow(started, type="user_message", payload={"content": "hi"})
    folded = state.apply(state.apply(state.initial(), started), said)
    made = catalog.row_of(
        folded, tenant="acme", session="s", sequence=8, read_to=9, strays=2, snapshot_seq=1
    )
    assert (made.status, made.waiting, made.seq, made.writer) == ("running", "model", 2, 1)
    assert made.counts == {"session_started": 1, "user_message": 1}
    assert (made.sequence, made.read_to, made.strays, made.snapshot_seq) == (8, 9, 2, 1)
    assert (made.first_ts, made.last_ts) == (started.ts, said.ts)
    ended = follow(said, type="session_ended", payload={"status": "failed"})
    made = catalog.row_of(
        state.apply(folded, ended), tenant="acme", session="s", sequence=9, read_to=9, strays=0
    )
    assert (made.status, made.waiting) == ("failed", None)


@pytest.mark.parametrize(
    ("new", "old", "wins"),
    [
        (row(read_to=1), None, True),
        (row(read_to=2), row(read_to=1), True),
        (row(read_to=1), row(read_to=2), False),
        (row(read_to=2), row(read_to=2), False),
        (row(read_to=2), row(read_to=2, error="x"), True),
        (row(read_to=2, error="y"), row(read_to=2, error="x"), False),
        (row(read_to=1), row(read_to=2, error="x"), False),
    ],
)
def test_the_row_that_reaches_further_wins(new: Row, old: Row | None, wins: bool) -> None:
    assert catalog.replaces(new, old) is wins


def test_a_session_set_aside_keeps_what_was_known_of_it() -> None:
    aside = catalog.set_aside(
        row(read_to=5, seq=3, status="running"),
        tenant="acme",
        session="s",
        read_to=9,
        reason="damaged",
    )
    assert (aside.seq, aside.status, aside.read_to, aside.error) == (3, "running", 9, "damaged")
    unknown = catalog.set_aside(None, tenant="acme", session="s", read_to=9, reason="damaged")
    assert (unknown.seq, unknown.read_to, unknown.error) == (0, 9, "damaged")


@given(st.binary(max_size=200))
def test_garbage_is_no_entry(value: bytes) -> None:
    assert catalog.decode(value) is None


sequences = st.integers(0, 2**63 - 1)
labelled = st.dictionaries(st.text(), st.text(), max_size=3)
rows = st.builds(
    Row,
    tenant=st.text(),
    session=st.text(),
    key=st.none() | st.text(),
    labels=labelled,
    counts=st.dictionaries(st.text(), sequences, max_size=3),
    read_to=sequences,
    sequence=sequences,
    error=st.none() | st.text(),
)


@given(rows)
def test_an_entry_comes_back_as_it_was_stored(entry: Row) -> None:
    assert catalog.decode(catalog.encode(entry)) == entry


def test_fields_of_a_later_version_do_not_hide_a_row() -> None:
    fields = msgspec.json.decode(catalog.encode(row(seq=3)))
    found = catalog.decode(msgspec.json.encode(fields | {"new": 1}))
    assert found == row(seq=3)


@given(labelled)
def test_every_row_is_in_the_index_that_its_filter_reads(labels: dict[str, str]) -> None:
    lineage = {"forked_from": {"session": "f", "seq": 1}}
    entry = row(status="running", waiting="model", labels=labels, damage="x", lineage=lineage)
    filters = [
        Filter(),
        Filter(status="running"),
        Filter(waiting="model", status="running"),
        Filter(damaged=True),
        Filter(labels=labels),
        *(Filter(labels={name: value}, status="running") for name, value in labels.items()),
    ]
    for wanted in filters:
        assert wanted.index() in catalog.indexes(entry)
        assert wanted.matches(entry)
    forks = Filter(fork_of="f")
    ((index, member),) = catalog.members(entry)
    assert index == catalog.ORIGINS
    assert member.startswith(forks.origin() or b"?")
    assert forks.matches(entry)


@pytest.mark.parametrize(
    "wanted",
    [
        Filter(status="new"),
        Filter(waiting="tools"),
        Filter(labels={"job": "b"}),
        Filter(labels={"job": "a", "x": "y"}),
        Filter(key="nightly"),
        Filter(key_prefix="weekly"),
        Filter(damaged=True),
        Filter(parent="p"),
        Filter(fork_of="f"),
    ],
)
def test_a_filter_leaves_out_what_does_not_fit(wanted: Filter) -> None:
    entry = row(status="running", waiting="model", labels={"job": "a"}, key="nightly/1")
    assert not wanted.matches(entry)


def test_a_session_with_a_thousand_labels_is_not_in_a_thousand_indexes() -> None:
    entry = row(labels={f"label-{n}": "x" for n in range(1_000)})
    assert len(catalog.indexes(entry)) < 100


def test_labels_that_look_alike_have_indexes_of_their_own() -> None:
    pairs = [("a", "b=c"), ("a=b", "c"), ("a", 'b"'), ("a,b", "c"), ("a", "b,c")]
    assert len({catalog.label_index(*pair) for pair in pairs}) == len(pairs)


@pytest.mark.parametrize("ts", [None, "", "yesterday", "0001-01-01T00:00:00Z", "9" * 400])
def test_a_clock_that_cannot_be_read_sorts_last(ts: str | None) -> None:
    assert catalog.activity(row(last_ts=ts)) == 0


def test_activity_is_in_microseconds() -> None:
    first = catalog.activity(row(last_ts="2026-05-06T14:23:01.123456Z"))
    assert catalog.activity(row(last_ts="2026-05-06T14:23:01.123457Z")) == first + 1
