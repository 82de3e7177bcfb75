"""What pods can reach, and what they cannot."""

from __future__ import annotations

import pytest
import yaml
from fakes.workflow.cases import GOLDEN

from pipelines.spec.delivery import Delivery
from pipelines.spec.workflow import out_of_reach
from tidegate.core.spec import SpecError, parse_spec


@pytest.mark.parametrize(
    ("why", "addresses"),
    [
        (None, "http://mlflow.mlflow:5000 https://10.0.0.7/mlflow mlflow-artifacts:/1/models/m-1 s3://bucket/1"),
        ("a file of one machine", "file:///srv/artifacts/1 sqlite:////srv/mlflow.db /srv/mlruns ./mlruns"),
        (
            "in a pod that is the pod itself",
            "http://127.0.0.1:5000 http://127.8.0.1 https://localhost:5000/mlflow http://LOCALHOST http://m.localhost "
            "http://[::1]:5000 http://0.0.0.0:5000 mlflow-artifacts://127.0.0.1:5000/1",
        ),
    ],
)
def test_what_no_pod_reaches_is_told_with_the_reason(why: str | None, addresses: str) -> None:
    assert {address: out_of_reach(address) for address in addresses.split()} == dict.fromkeys(addresses.split(), why)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "sqlite:///mlflow.db", "file:///srv/mlruns"])
def test_a_spec_that_names_such_a_registry_is_refused_at_its_line(uri: str) -> None:
    written = yaml.safe_load((GOLDEN / "one-region" / "delivery.yaml").read_text())
    written["workflow"]["tracking_uri"] = uri
    with pytest.raises(SpecError) as caught:
        parse_spec(yaml.safe_dump(written), Delivery, file="delivery.yaml")
    (problem,) = caught.value.problems
    assert (problem.path, problem.found.startswith(f"{uri}: ")) == ("workflow.tracking_uri", True)
    assert problem.expected.startswith("an MLflow server as pods reach it, such as http://mlflow.mlflow:5000")
