"""The guard of a region: there, from the right image, and ready; or told which of these it is not."""

from __future__ import annotations

import pytest
from fakes.clusters.doctor_region import GUARD_IMAGE, NAME, Region

from rollouts.doctor.model import Severity
from rollouts.kube.resources import DEPLOYMENTS, PODS
from rollouts.manifests.conventions import GUARD, guard


async def test_a_spec_without_one_is_told_what_that_means() -> None:
    (finding,) = await Region(guard="").examined()
    assert (finding.code, finding.severity) == ("no-guard", Severity.NOTE)
    assert "goes on until a person ends it" in finding.cause


async def test_one_that_was_never_applied(region: Region) -> None:
    region.cluster.delete(DEPLOYMENTS, guard(NAME))
    region.wait(60)
    assert await region.found() == {"guard-absent"}


async def test_one_of_another_image(region: Region) -> None:
    other = GUARD_IMAGE.replace("5", "4")
    region.edit(
        DEPLOYMENTS,
        guard(NAME),
        lambda it: it["spec"]["template"]["spec"]["containers"][0].update(image=other),
    )
    region.wait(60)
    (finding,) = await region.examined()
    assert (finding.code, finding.evidence) == ("guard-image-differs", (f"found: {other}", f"expected: {GUARD_IMAGE}"))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"waiting": {"reason": "ErrImagePull", "message": "no such manifest"}}, "no such manifest"),
        ({"running": {}}, "it runs, and says that it cannot guard"),
    ],
    ids=["its image is not there", "it lacks a right"],
)
async def test_one_that_is_not_ready(region: Region, state: dict[str, object], told: str) -> None:
    (pod,) = region.cluster.list(PODS, labels=f"{GUARD}={NAME}")
    name = pod["metadata"]["name"]
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "guard", "state": state}],
    }
    region.at_last.append(lambda: region.cluster.patch(PODS, name, {"status": status}, subresource="status"))
    (finding,) = await region.examined()
    assert (finding.code, finding.evidence) == ("guard-not-ready", (f"Pod {name}: {told}",))
