"""The Kubernetes manifests, as rendered: valid, restricted, and true to the services' settings."""

import re

import pytest
import typer
import yaml
from kubernetes_validate import validate

from flightlog.wire import layout
from flightlog_projector.service import DURABLE
from flightlog_recorder.cli import app as cli
from tests.deploy import settings_of
from tests.deploy.rendered import (
    DEPLOY,
    OVERLAYS,
    PARTS,
    component,
    containers,
    is_native,
    of_kind,
    overlay,
    part_of,
    pod_of,
    workloads,
)

KUBERNETES = "1.32"  # the oldest that the job's policy is written for
SECRETS_OF_OTHERS = {"flightlog-projector", "flightlog-recorder", "flightlog-agent"}
LEFT_TO_CLOSE = 10  # seconds beside the drain, to close connections and leave
STANDARD_LABELS = {f"app.kubernetes.io/{name}" for name in ("name", "component", "part-of")}

every_overlay = pytest.mark.parametrize("name", OVERLAYS)


@every_overlay
@pytest.mark.timeout(60)  # the schemas of Kubernetes are large
def test_every_resource_is_valid_to_the_letter(name: str) -> None:
    for resource in filter(is_native, overlay(name)):
        validate(dict(resource), KUBERNETES, strict=True)


@every_overlay
def test_every_resource_carries_the_standard_labels(name: str) -> None:
    for resource in overlay(name):
        if resource["kind"] in ("Namespace", "ConfigMap", "Secret"):
            continue
        labels = resource["metadata"]["labels"].keys()
        assert labels >= STANDARD_LABELS, resource["metadata"]["name"]


@every_overlay
def test_every_pod_keeps_to_the_restricted_standard(name: str) -> None:
    [namespace] = of_kind(overlay(name), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in workloads(name).values():
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["spec"].keys() & {"hostNetwork", "hostPID", "hostIPC"}
        kinds = {kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"secret", "configMap", "emptyDir"}
        for container in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@every_overlay
def test_no_pod_gets_a_token_and_each_says_what_it_needs(name: str) -> None:
    for account in of_kind(overlay(name), "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for pod in workloads(name).values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        if any(map(part_of, containers(pod))):
            assert pod["spec"]["enableServiceLinks"] is False
        for container in containers(pod):
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]


@every_overlay
def test_every_name_that_is_referred_to_is_there(name: str) -> None:
    resources = overlay(name)
    there = {(each["kind"], each["metadata"]["name"]) for each in resources}
    made_by_hand = set[str]() if name == "dev" else SECRETS_OF_OTHERS
    for pod in workloads(name).values():
        mounted = {volume["name"] for volume in pod["spec"]["volumes"]}
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                secret = volume["secret"]["secretName"]
                assert secret in made_by_hand or ("Secret", secret) in there
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
        if account := pod["spec"].get("serviceAccountName"):
            assert ("ServiceAccount", account) in there
        for container in containers(pod):
            claims = {"data"} if container["name"] == "nats" else set[str]()
            assert {each["name"] for each in container["volumeMounts"]} <= mounted | claims


def test_the_secrets_that_production_expects_are_told_in_the_operations_page() -> None:
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    for secret in SECRETS_OF_OTHERS:
        assert f"create secret generic {secret}" in page


def production_steps() -> list[str]:
    """What the operations page has typed for production, a command each, in its order."""
    page = (DEPLOY.parent / "docs" / "operations.md").read_text()
    _, _, section = page.partition("\n## Production\n")
    section = section.partition("\n### ")[0].replace("\\\n", " ")
    typed = re.findall(r"```\n(.*?)```|`([^`]+)`", section, flags=re.DOTALL)
    steps = [step for block, inline in typed for step in block.splitlines() or [inline]]
    return [re.sub(r"\s+", " ", step).strip() for step in steps]


def test_no_step_for_production_uses_a_namespace_that_none_before_it_has_made() -> None:
    made, used = set[str](), set[str]()
    for step in production_steps():
        if found := re.search(r"kubectl create namespace (\S+)", step):
            made.add(found[1])
        elif found := re.search(r"kubectl apply -f deploy/(\S+)", step):
            resource = yaml.safe_load((DEPLOY / found[1]).read_text())
            made |= {each["metadata"]["name"] for each in of_kind([resource], "Namespace")}
        wanted = set(re.findall(r"(?:^kubectl .*?-n|--namespace)[ =](\S+)", step))
        assert wanted <= made, step
        used |= wanted
    assert used == {"nats", "flightlog"}


def test_production_says_before_it_asks_the_cluster_how_helm_and_the_command_find_it() -> None:
    steps = production_steps()

    def first(begun: str) -> int:
        return next(number for number, step in enumerate(steps) if begun in step)

    assert first("helm repo add nats") < first("helm upgrade --install nats nats/nats")
    opened = first("kubectl -n nats port-forward service/nats 4222")
    connecting = [number for number, step in enumerate(steps) if ". made/users/" in step]
    assert connecting
    assert opened < min(connecting)
    assert "--output made" in steps[first("flightlog --nats nats://nats.nats:4222")]  # asks nobody


@every_overlay
def test_every_selector_finds_its_pods(name: str) -> None:
    pods = [pod["metadata"]["labels"] for pod in workloads(name).values()]
    selectors = [each["spec"]["selector"] for each in of_kind(overlay(name), "Service")]
    for kind in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
        selectors += [
            each["spec"]["selector"]["matchLabels"] for each in of_kind(overlay(name), kind)
        ]
    for workload in workloads(name).values():
        for spread in workload["spec"].get("topologySpreadConstraints", ()):
            selectors.append(spread["labelSelector"]["matchLabels"])
    for selector in selectors:
        assert any(selector.items() <= labels.items() for labels in pods), selector


@every_overlay
def test_every_variable_is_one_that_the_part_reads(name: str) -> None:
    for pod in workloads(name).values():
        for container in containers(pod):
            if (part := part_of(container)) is None:
                continue
            given = {each for each in settings_of.environment(container) if "FLIGHTLOG_" in each}
            unknown = given - settings_of.readable(part, command="command" in container)
            assert not unknown, (container["name"], unknown)
            assert given >= {"FLIGHTLOG_NATS_URL_FILE"}


@every_overlay
def test_no_secret_is_a_variable_and_each_lies_where_its_variable_says(name: str) -> None:
    for pod in workloads(name).values():
        for container in containers(pod):
            if part_of(container) is None:
                continue
            [mount] = [each for each in container["volumeMounts"] if each["name"] == "secrets"]
            variables = settings_of.environment(container)
            assert not variables.keys() & {"FLIGHTLOG_NATS_URL", "FLIGHTLOG_REDIS_URL"}
            files = [path for each, path in variables.items() if each.endswith("_FILE")]
            assert {path.rpartition("/")[0] for path in files} == {mount["mountPath"]}
            assert {path.rpartition("/")[2] for path in files} <= {"nats-url", "redis-url"}


@every_overlay
@pytest.mark.parametrize("part", PARTS)
def test_ports_and_deadlines_are_those_of_the_settings(name: str, part: str) -> None:
    pod = workloads(name)[f"flightlog-{part}"]
    [container] = pod["spec"]["containers"]
    port = settings_of.default(part, "http_port")
    variables = settings_of.environment(container)
    assert int(variables["FLIGHTLOG_HTTP_PORT"]) == port
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    [service] = [
        each
        for each in of_kind(overlay(name), "Service")
        if each["metadata"]["name"] == f"flightlog-{part}"
    ]
    assert service["spec"]["ports"] == [{"name": "http", "port": port, "targetPort": "http"}]
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace >= float(variables.get("FLIGHTLOG_DRAIN_TIMEOUT", 0)) + LEFT_TO_CLOSE


@every_overlay
@pytest.mark.parametrize("part", PARTS)
def test_a_services_pods_lie_apart_and_are_moved_one_at_a_time(name: str, part: str) -> None:
    pod = workloads(name)[f"flightlog-{part}"]
    spreads = pod["spec"]["topologySpreadConstraints"]
    assert "kubernetes.io/hostname" in {each["topologyKey"] for each in spreads}
    [budget] = [
        each["spec"]
        for each in of_kind(overlay(name), "PodDisruptionBudget")
        if each["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ]
    assert budget["maxUnavailable"] == 1
    for each in spreads:
        assert each["labelSelector"] == budget["selector"]


@every_overlay
@pytest.mark.parametrize("part", PARTS)
def test_every_probe_asks_for_a_page_that_is_served(name: str, part: str) -> None:
    [container] = workloads(name)[f"flightlog-{part}"]["spec"]["containers"]
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    asked = [container[probe]["httpGet"] for probe in probes]
    assert [each["path"] for each in asked] == ["/startupz", "/livez", "/readyz"]
    assert {each["path"] for each in asked} <= settings_of.pages(part)
    assert {each["port"] for each in asked} == {"http"}
    [monitor] = of_kind(component("monitoring"), "ServiceMonitor")
    assert {each["path"] for each in monitor["spec"]["endpoints"]} <= settings_of.pages(part)


@every_overlay
def test_nothing_but_names_nats_and_redis_is_reached(name: str) -> None:
    policies = {each["metadata"]["name"]: each for each in of_kind(overlay(name), "NetworkPolicy")}
    everything = policies["flightlog"]["spec"]
    assert everything["podSelector"]["matchLabels"] == {"app.kubernetes.io/part-of": "flightlog"}
    assert set(everything["policyTypes"]) == {"Ingress", "Egress"}
    assert everything["ingress"] == []
    names, stores = everything["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    assert {each["port"] for each in stores["ports"]} == {4222, 6379}
    for policy in policies.values():
        assert policy is policies["flightlog"] or "egress" not in policy["spec"]


@every_overlay
def test_the_scheduled_agent_is_retried_only_where_a_retry_helps(name: str) -> None:
    [cron] = of_kind(overlay(name), "CronJob")
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    job = cron["spec"]["jobTemplate"]["spec"]
    assert job["podReplacementPolicy"] == "Failed"
    actions = {
        code: rule["action"]
        for rule in job["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {}).get("values", ())
    }
    assert actions == {1: "FailIndex", 4: "FailIndex", 143: "Ignore"}
    pod = pod_of(cron)
    assert pod is not None
    assert pod["spec"]["restartPolicy"] == "Never"
    [container] = pod["spec"]["containers"]
    given = settings_of.environment(container).keys()
    used = {each.partition("$(")[2].rstrip(")") for each in container["args"] if "$(" in each}
    assert used == {"CRONJOB_NAME", "JOB_NAME", "POD_NAME", "NODE_NAME", "ATTEMPT"}
    assert used <= given
    assert settings_of.environment(container)["CRONJOB_NAME"] == cron["metadata"]["name"]


def test_autoscaling_watches_the_projectors_consumer_on_each_of_eight_streams() -> None:
    [scaled] = component("autoscaling")
    triggers = [each["metadata"] for each in scaled["spec"]["triggers"]]
    assert [each["stream"] for each in triggers] == [
        config["name"] for config in layout.log_configs(8)
    ]
    assert {each["consumer"] for each in triggers} == {DURABLE}
    [projector] = [
        each
        for each in of_kind(overlay("production"), "Deployment")
        if each["metadata"]["name"] == scaled["spec"]["scaleTargetRef"]["name"]
    ]
    assert "replicas" not in projector["spec"]


def test_the_scheduled_agents_command_line_is_one_that_flightlog_takes() -> None:
    [cron] = of_kind(overlay("dev"), "CronJob")
    pod = pod_of(cron)
    assert pod is not None
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["flightlog"]
    name, *arguments = container["args"]
    command = typer.main.get_command(cli).get_command(None, name)  # type: ignore[attr-defined]
    with command.make_context(name, arguments, resilient_parsing=False) as context:
        grace = context.params["grace"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= grace + LEFT_TO_CLOSE
