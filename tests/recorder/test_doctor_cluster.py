"""`flightlog doctor` on three nodes: each proves for itself that an ack means on disk."""

import json
from pathlib import Path

import pytest

from flightlog.bus import access
from flightlog.bus.access import NatsAccess
from flightlog_recorder.access import accounts
from flightlog_recorder.doctor import doctor
from flightlog_recorder.doctor.finding import Finding
from flightlog_recorder.doctor.gather import Place
from tests.cluster import Cluster
from tests.recorder.command import Command
from tests.roled import PASSWORD, make_streams, of_cluster, on_cluster
from tests.scripted import until

pytestmark = pytest.mark.timeout(90)  # a cluster starts, elects, and misses a node

FLEET, BOSS = accounts.of_tenants("fleet", ["acme"]), "fleet-boss"


async def look(cluster: Cluster) -> dict[str, list[Finding]]:
    """What an operator finds who knows the doctor, by line."""
    place = Place(of_cluster(cluster, "fleet-operator"), of_cluster(cluster, "doctor"))
    found = await doctor.examine(place)
    return {check: [each for each in found if each.check == check] for check in doctor.CHECKS}


async def test_every_node_is_asked_and_one_that_is_gone_is_missed(tmp_path: Path) -> None:
    with on_cluster(tmp_path, FLEET) as cluster:
        await make_streams(cluster, BOSS)

        async def is_well() -> bool:  # a fresh replica is not current at once
            found = await look(cluster)
            asked = ("server versions", "sync_always", "replicas", "max_payload", "permissions")
            return all(each.grade == "ok" for check in asked for each in found[check])

        await until(is_well, timeout=20)
        assert (await look(cluster))["sync_always"][0].what == "proven on n1, n2, n3"
        cluster.node("n3").kill()

        async def is_missed() -> bool:
            found = await look(cluster)
            [sync] = found["sync_always"]
            return sync.what == "unproven: n3 does not answer" and any(
                "the replica on n3 is gone" in each.what and each.grade == "wrong"
                for each in found["replicas"]
            )

        await until(is_missed, timeout=40)


async def test_a_node_that_syncs_now_and_then_is_named(tmp_path: Path) -> None:
    store = json.dumps(str(tmp_path / "n2" / "store"))
    lazy = f"jetstream {{ store_dir: {store}, sync_interval: 2m }}\nmax_payload: 512KB"
    with on_cluster(tmp_path, FLEET, extra={"n2": lazy}) as cluster:
        await make_streams(cluster, BOSS, replicas=1)
        found = await look(cluster)
        [sync] = found["sync_always"]
        assert (sync.grade, sync.what) == ("wrong", "n2: an ack does not mean on disk")
        assert "sync_interval: always" in sync.mend
        [payload] = found["max_payload"]
        assert payload.what.startswith("n2 takes 524,288 bytes")
        [single] = found["replicas"]
        assert (single.grade, "one replica in a cluster" in single.what) == ("warning", True)


async def test_two_nodes_that_are_gone_leave_no_leader_and_it_is_said(tmp_path: Path) -> None:
    with on_cluster(tmp_path, FLEET) as cluster:
        await make_streams(cluster, BOSS)
        for name in ("n2", "n3"):
            cluster.node(name).kill()

        async def is_seen() -> bool:  # what is left of the cluster takes a while to see it
            found = await look(cluster)
            blind = ("stream settings", "replicas", "projector lag", "projector progress")
            return "ok" not in {each.grade for check in blind for each in found[check]}

        await until(is_seen, timeout=40)


async def test_the_system_account_comes_from_the_environment_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    (home := tmp_path / "nodes").mkdir()
    with on_cluster(home, FLEET) as cluster:
        await make_streams(cluster, BOSS)
        environ = {
            "FLIGHTLOG_NATS_URL": cluster.url,
            "FLIGHTLOG_NATS_USER": "fleet-operator",
            "FLIGHTLOG_NATS_PASSWORD": PASSWORD,
            "FLIGHTLOG_SYSTEM_NATS_USER": "doctor",
            "FLIGHTLOG_SYSTEM_NATS_PASSWORD_FILE": str(secret),
        }
        ran = await Command(environ)("doctor", "--json")
        [sync] = [each for each in ran.json["findings"] if each["check"] == "sync_always"]
        assert sync["grade"] == "ok"
        assert PASSWORD not in ran.out + ran.err


def test_the_system_account_is_asked_at_the_same_servers_unless_others_are_named() -> None:
    main = NatsAccess(url="tls://ann:secret@a:4222, nats://b:4222", ca="ca.pem")
    assert access.system(main, environ={}) is None
    assert access.system(main, environ={"FLIGHTLOG_NATS_USER": "ann"}) is None
    found = access.system(main, environ={"FLIGHTLOG_SYSTEM_NATS_USER": "doctor"})
    assert found == NatsAccess(url="tls://a:4222,nats://b:4222", user="doctor", ca="ca.pem")
    elsewhere = access.system(main, "nats://doctor:secret@c:4222", environ={})
    assert elsewhere is not None
    assert elsewhere.servers == ["c:4222"]
