"""The slot-to-stream map, and the settings that make a stream a log."""

from typing import Any

import pytest

from flightlog.errors import LayoutRefused
from flightlog.wire import layout, subject
from flightlog.wire.layout import Config

MISSING = object()


def broker(streams: int = 1, **options: Any) -> list[Config]:
    """The settings of a provisioned broker, as its STREAM.LIST answers them."""
    return layout.log_configs(streams, **options) + layout.side_configs(**options)


def changed(name: str, **changes: object) -> list[Config]:
    found = broker(2)
    for config in found:
        if config["name"] == name:
            for field, value in changes.items():
                if value is MISSING:
                    config.pop(field)
                else:
                    config[field] = value
    return found


@pytest.mark.parametrize("streams", [1, 2, 3, 8, 63, 64])
def test_every_slot_has_one_stream_and_the_load_is_even(streams: int) -> None:
    found = layout.read_layout(broker(streams))
    assert len(found.streams) == streams
    assert len(found.slots) == subject.SLOTS
    counts = [found.slots.count(stream) for stream in found.streams]
    assert max(counts) - min(counts) <= 1
    session = subject.mint()
    assert found.stream_of(session) == found.slots[subject.slot(session)]


def test_streams_are_ordered_by_number_not_by_name() -> None:
    found = layout.read_layout(list(reversed(broker(12))))
    assert found.streams == tuple(f"FLIGHTLOG_{n}" for n in range(12))


@pytest.mark.parametrize("streams", [0, -1, 65])
def test_a_number_of_streams_that_cannot_be_is_refused(streams: int) -> None:
    with pytest.raises(LayoutRefused, match="choose 1 to 64"):
        layout.log_configs(streams)


def test_a_layout_under_another_prefix_is_read_with_that_prefix_only() -> None:
    configs = broker(2, prefix="lab.v1")
    assert layout.read_layout(configs, prefix="lab.v1").prefix == "lab.v1"
    with pytest.raises(LayoutRefused):
        layout.read_layout(configs)


def test_what_operators_change_is_accepted() -> None:
    free: dict[str, Any] = {"max_bytes": 10, "num_replicas": 3, "placement": {"tags": ["ssd"]}}
    found = layout.read_layout(changed("FLIGHTLOG_1", description="prod", **free))
    assert found.replicas == 1
    assert layout.read_layout(broker(2, replicas=3)).replicas == 3


def test_what_the_server_leaves_out_because_it_is_false_or_zero_is_no_difference() -> None:
    free: dict[str, Any] = dict.fromkeys(["deny_purge", "allow_rollup_hdrs", "max_age"], MISSING)
    assert len(layout.read_layout(changed("FLIGHTLOG_0", **free)).streams) == 2


def test_subjects_in_another_order_are_no_difference() -> None:
    found = broker(2)
    for config in found:
        config["subjects"] = config["subjects"][::-1]
    assert len(layout.read_layout(found).streams) == 2


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("FLIGHTLOG_0", "storage", "memory"),
        ("FLIGHTLOG_0", "retention", "interest"),
        ("FLIGHTLOG_0", "discard", "old"),
        ("FLIGHTLOG_1", "max_age", 3_600_000_000_000),
        ("FLIGHTLOG_0", "max_msgs", 1_000),
        ("FLIGHTLOG_0", "max_msgs_per_subject", 5),
        ("FLIGHTLOG_0", "max_msg_size", 1_024),
        ("FLIGHTLOG_0", "deny_delete", False),
        ("FLIGHTLOG_0", "deny_delete", MISSING),
        ("FLIGHTLOG_0", "deny_purge", True),
        ("FLIGHTLOG_0", "allow_rollup_hdrs", True),
        ("FLIGHTLOG_0", "allow_direct", False),
        ("FLIGHTLOG_0", "allow_atomic", MISSING),
        ("FLIGHTLOG_0", "allow_msg_ttl", False),
        ("FLIGHTLOG_0", "persist_mode", "async"),
        ("FLIGHTLOG_0", "sealed", True),
        ("FLIGHTLOG_0", "no_ack", True),
        ("FLIGHTLOG_0", "metadata", {"flightlog.wire": "2"}),
        ("FLIGHTLOG_0", "metadata", MISSING),
        ("FLIGHTLOG_0", "subject_transform", {"src": ">", "dest": "x.>"}),
        ("FLIGHTLOG_0", "mirror", {"name": "OTHER"}),
        ("FLIGHTLOG_0", "sources", [{"name": "OTHER"}]),
        ("FLIGHTLOG_inbox", "max_age", 5),
        ("FLIGHTLOG_notice", "storage", "memory"),
        ("FLIGHTLOG_blobs", "max_msgs_per_subject", -1),
        ("FLIGHTLOG_blobs", "deny_purge", True),
        ("KV_FLIGHTLOG_keys", "max_msgs_per_subject", 2),
    ],
)
def test_a_stream_with_other_settings_is_refused_by_name_and_field(
    name: str, field: str, value: object
) -> None:
    with pytest.raises(LayoutRefused, match=f"stream {name} has other settings: .*{field}"):
        layout.read_layout(changed(name, **{field: value}))


def test_a_broker_without_our_streams_names_the_command() -> None:
    for configs in ([], layout.side_configs(), [{"name": "ORDERS"}, {"name": "FLIGHTLOG_x"}]):
        with pytest.raises(LayoutRefused, match="no Flightlog streams; run: flightlog provision"):
            layout.read_layout(list(configs))


def test_slots_without_a_stream_are_counted() -> None:
    found = [config for config in broker(4) if config["name"] != "FLIGHTLOG_2"]
    with pytest.raises(LayoutRefused, match="16 of 64 slots have no stream"):
        layout.read_layout(found)


def test_a_slot_claimed_twice_is_refused() -> None:
    found = broker(2)
    found[1]["subjects"] = [*found[1]["subjects"], "flightlog.v1.0.*.*.base"]
    with pytest.raises(LayoutRefused, match="slot 0 is claimed by two streams"):
        layout.read_layout(found)


@pytest.mark.parametrize("text", ["flightlog.v1.64.*.*.live", "flightlog.v1.inbox.>", "orders.>"])
def test_a_subject_that_is_no_slot_is_refused(text: str) -> None:
    found = broker(1)
    found[0]["subjects"] = [*found[0]["subjects"], text]
    with pytest.raises(LayoutRefused, match="FLIGHTLOG_0 binds a subject that is no slot"):
        layout.read_layout(found)


SIDE = [
    "FLIGHTLOG_inbox",
    "FLIGHTLOG_notice",
    "FLIGHTLOG_blobs",
    "FLIGHTLOG_dead",
    "KV_FLIGHTLOG_keys",
]


@pytest.mark.parametrize("name", SIDE)
def test_a_missing_stream_beside_the_logs_is_named(name: str) -> None:
    found = [config for config in broker(2) if config["name"] != name]
    with pytest.raises(LayoutRefused, match=f"stream {name} is missing"):
        layout.read_layout(found)


def draining(*streams: str) -> layout.Layout:
    found = broker(4)
    for config in found:
        if config["name"] in streams:
            config["metadata"] = {**config["metadata"], "flightlog.draining": "yes"}
    return layout.read_layout(found)


def test_no_session_begins_in_a_stream_that_is_draining() -> None:
    found = draining("FLIGHTLOG_0", "FLIGHTLOG_2")
    assert {found.stream_of(found.mint()) for _ in range(200)} == {"FLIGHTLOG_1", "FLIGHTLOG_3"}


def test_no_session_begins_where_every_stream_is_draining() -> None:
    with pytest.raises(LayoutRefused, match="every log stream is draining"):
        draining(*draining().streams).mint()


def test_replicated_logs_are_not_compressed_and_the_operator_may_choose() -> None:
    assert {config["compression"] for config in layout.log_configs(2, replicas=3)} == {"none"}
    assert {config["compression"] for config in layout.log_configs(2)} == {"s2"}
    made = layout.log_configs(1) + layout.side_configs()
    assert layout.read_layout([made[0] | {"compression": "none"}, *made[1:]]).replicas == 1
