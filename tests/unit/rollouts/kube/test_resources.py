"""The way from a manifest to its resource."""

from __future__ import annotations

import pytest

from rollouts.errors import NotPossible
from rollouts.kube.resources import HTTP_ROUTES, resource_of


def test_a_manifest_of_another_version_goes_to_that_version() -> None:
    found = resource_of({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "HTTPRoute"})
    assert found == HTTP_ROUTES.model_copy(update={"version": "v1beta1"})


@pytest.mark.parametrize(
    "manifest",
    [{}, {"kind": "Rollout"}, {"apiVersion": "apps/v1", "kind": "Rollout"}, {"apiVersion": "v1", "kind": "Deployment"}],
)
def test_an_unknown_kind_is_no_guess(manifest: dict[str, str]) -> None:
    with pytest.raises(NotPossible, match="does not know"):
        resource_of(manifest)
