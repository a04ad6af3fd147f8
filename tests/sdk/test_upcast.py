"""Old logs are read for ever, newer ones are refused by name, and nothing is guessed."""

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

import flightlog
from flightlog import VersionRefused, event, upcast
from flightlog.bus.protocol import Outgoing
from flightlog.event import Event
from flightlog.reading import reader
from flightlog.wire import subject as names


def made(type: str = "note", payload: bytes = b'{"a":1}', v: int = 1) -> Event:
    found = event.compose(
        session_id="sess_a",
        seq=1,
        type=type,
        payload=Raw(payload),
        prev=None,
        parent_seq=None,
        harness_version="1",
    )
    return replace(found, v=v)


def renamed(type: str, raw: Raw) -> tuple[str, Raw]:
    return ("remark" if type == "note" else type), raw


def widened(type: str, raw: Raw) -> tuple[str, Raw]:
    value = msgspec.json.decode(raw)
    return type, Raw(msgspec.json.encode({**value, "b": 2}))


STEPS = {1: renamed, 2: widened}


def test_an_event_is_lifted_one_version_at_a_time_and_keeps_its_bytes() -> None:
    old = made()
    new = upcast.lift(old, steps=STEPS, known=3)
    assert (new.type, new.payload) == ("remark", {"a": 1, "b": 2})
    assert (new.body, new.digest, new.seq) == (old.body, old.digest, old.seq)
    assert upcast.lift(made(v=2), steps=STEPS, known=3).type == "note"
    assert upcast.lift(made(v=3), steps=STEPS, known=3).payload == {"a": 1}


def test_a_newer_event_and_a_missing_step_are_refused_with_both_versions() -> None:
    with pytest.raises(VersionRefused, match="wire version 4, this process knows 3"):
        upcast.lift(made(v=4), steps=STEPS, known=3)
    with pytest.raises(VersionRefused, match="wire version 1, this process knows 3"):
        upcast.lift(made(), steps={2: widened}, known=3)


def test_states_of_older_projections_are_lifted_newest_first() -> None:
    steps = {("p", 1): lambda state: state + b"2", ("p", 2): lambda state: state + b"3"}
    found = [(version, lift(b"s")) for version, lift in upcast.older("p", 3, steps=steps)]
    assert found == [(2, b"s3"), (1, b"s23")]
    assert list(upcast.older("other", 3, steps=steps)) == []


async def test_a_log_of_a_newer_wire_version_is_refused_and_still_readable(nats_url: str) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        async with log.session() as session:
            await session.user_message("hello")
            seq, digest = session.state.seq, session.state.digest
            last = session.id
        folded = await log.fold(last)
        newer = event.compose(
            session_id=last,
            seq=folded.seq + 1,
            type="thought",
            payload=Raw(b"{}"),
            prev=folded.digest,
            parent_seq=folded.seq,
            harness_version="2",
        )
        body = newer.body.replace(b'{"v":1,', b'{"v":2,', 1)
        live = names.log_subject(log.tenant, last, "live")
        await log.bus.append(live, [Outgoing(body, {})], expected=folded.last_live, timeout=5)
        with pytest.raises(VersionRefused, match="wire version 2, this process knows 1"):
            await log.state(last)
        with pytest.raises(VersionRefused):
            async with log.session(id=last):
                pass
        assert [e.v async for e in reader.read(log.bus, log.tenant, last)][-1] == 2
        assert seq == 2
        assert digest is not None


async def test_a_harness_goes_on_only_with_versions_that_it_declares(nats_url: str) -> None:
    async with flightlog.connect(nats=nats_url) as log:
        async with log.session(key="k", harness_version="1.0") as session:
            await session.user_message("hello")
        with pytest.raises(VersionRefused, match=r"harness version 1\.0, this process knows 2\.0"):
            async with log.session(key="k", harness_version="2.0", compatible=()):
                pass
        async with log.session(key="k", harness_version="2.0", compatible=["1.0"]) as session:
            assert session.state.harness_version == "2.0"
        async with log.session(key="k", harness_version="3.0") as session:
            assert session.state.harness_version == "3.0"
