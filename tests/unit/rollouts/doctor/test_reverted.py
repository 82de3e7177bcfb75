"""Who wrote the version that a Rollout asks for, when it was not tidegate."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import NAME, Region

from rollouts.doctor.model import Severity
from rollouts.kube.resources import ROLLOUTS
from tidegate.core.names import VERSION


@pytest.mark.parametrize("manager", ["argocd-controller", "kustomize-controller", "kubectl-client-side-apply"])
async def test_who_wrote_an_older_version_back_is_named(trial: Region, manager: str) -> None:
    template = trial.cluster.get(ROLLOUTS, NAME)["spec"]["template"]
    labels = {**template["metadata"]["labels"], VERSION: "7"}
    written = {"spec": {"template": {"metadata": {"labels": labels}}}}
    trial.cluster.patch(ROLLOUTS, NAME, written, manager=manager)
    trial.wait(60)
    found = next(each for each in await trial.examined() if each.code == "reverted-by")
    assert found.severity is Severity.WARNING
    assert f"{manager} at " in found.evidence[0]
    assert found.evidence[0].endswith("asks for version 7")


async def test_what_tidegate_asked_for_is_no_finding(trial: Region) -> None:
    assert "reverted-by" not in {each.code for each in await trial.examined()}
