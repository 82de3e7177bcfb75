"""Labels and annotations of theirs, on every object and its pods, and never in place of ours."""

from __future__ import annotations

import pytest
from fakes.fleet import fleet_spec, release

from rollouts.manifests.render import render
from tidegate.core.names import DELIVERY

THEIRS = {"labels": {"cost-center": "a7"}, "annotations": {"example.com/owner": "chat, ext. 12"}}


def test_every_object_and_every_pod_has_them() -> None:
    plain = render(fleet_spec(warm_pool={}), release(), guard="r/t@sha256:" + "1" * 64)
    objects = render(fleet_spec(warm_pool={}, **THEIRS), release(), guard="r/t@sha256:" + "1" * 64)
    metadata = [each["metadata"] for each in objects]
    metadata += [each["spec"]["template"]["metadata"] for each in objects if each["kind"] in {"Rollout", "Deployment"}]
    assert len(metadata) == len(objects) + 3
    for each in metadata:
        assert THEIRS["labels"].items() <= each["labels"].items()
        assert THEIRS["annotations"].items() <= each["annotations"].items()
    for before, after in zip(plain, objects, strict=True):
        assert before["metadata"]["labels"].items() <= after["metadata"]["labels"].items()
        assert before.get("spec", {}).get("selector") == after.get("spec", {}).get("selector")


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize(
    "key", [DELIVERY, "app.kubernetes.io/managed-by", "rollouts-pod-template-hash", "tidegate.dev/x"]
)
def test_ours_are_refused(part: str, key: str) -> None:
    (found,) = fleet_spec(**{part: {key: "x"}}).contradictions()
    assert (found.where, found.found) == ((part, key), "a key that tidegate or Argo Rollouts sets")


def test_pods_may_not_have_another_one() -> None:
    (found,) = fleet_spec(labels={"team": "a"}, pod={"labels": {"team": "b"}}).contradictions()
    assert (found.where, found.found) == (("pod", "labels", "team"), "b")
