"""The resources of other operators, against schemas of their public fields."""

import json
from typing import Any

import jsonschema
import pytest

from tests.deploy.rendered import ROOT, component, is_native, overlay

SCHEMAS = ROOT / "tests" / "deploy" / "schemas"


def schema_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"{kind}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def test_what_production_brings_for_other_operators_fits_their_schemas() -> None:
    foreign = [each for each in overlay("production") if not is_native(each)]
    assert {each["kind"] for each in foreign} == {
        "ServiceMonitor",
        "PrometheusRule",
        "ScaledObject",
    }
    for resource in foreign:
        jsonschema.validate(resource, schema_of(resource["kind"]))


def test_a_cluster_without_operators_gets_nothing_of_theirs() -> None:
    assert all(map(is_native, overlay("dev")))


def test_the_streams_fit_nacks_schema() -> None:
    for resource in component("streams"):
        jsonschema.validate(resource, schema_of("Stream"))


def test_a_field_that_nobody_knows_is_refused() -> None:
    resource = dict(component("streams")[0])
    resource["spec"] = {**resource["spec"], "maxMessages": 1}
    with pytest.raises(jsonschema.ValidationError, match="maxMessages"):
        jsonschema.validate(resource, schema_of("Stream"))
