"""What a delivery has to be allowed, as questions to the API server: the very rights that are rendered."""

from __future__ import annotations

from collections.abc import Iterator

from rollouts.kube.model import EVERYWHERE, AccessQuestion
from rollouts.manifests.manifest import Site
from rollouts.manifests.objects.access import Right, cluster_rights, rights
from rollouts.manifests.release import Release
from rollouts.manifests.spec import ArgoFleetSpec


def questions_of(fleet: ArgoFleetSpec, delivery: str, region: str) -> tuple[AccessQuestion, ...]:
    """Every right that `tidegate rollout render` gives in a region, one question for each verb and name."""
    # Which engine it is changes no right.
    release = Release(delivery=delivery, region=region, version="0", digest="", image="")
    inside = [question for right in rights(Site(fleet=fleet, release=release)) for question in _asked(right, None)]
    outside = [question for right in cluster_rights() for question in _asked(right, EVERYWHERE)]
    return tuple(dict.fromkeys([*inside, *outside]))


def _asked(right: Right, namespace: str | None) -> Iterator[AccessQuestion]:
    for verb in right.verbs:
        for name in right.names or ("",):
            yield AccessQuestion(
                verb=verb, resource=right.resource, name=name, subresource=right.subresource, namespace=namespace
            )
