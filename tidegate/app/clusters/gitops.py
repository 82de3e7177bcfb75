"""What of a delivery's objects GitOps tools have to leave alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipelines.adapters.specs import on_clusters, read_spec
from pipelines.plan.region_objects import rendering
from rollouts.adoption.gitops import DeliveredObject, delivered_objects
from rollouts.model import Engine


@dataclass(frozen=True)
class DeliveredObjects:
    """Of one delivery, in all its regions."""

    delivery: str
    objects: tuple[DeliveredObject, ...]


def objects_of_deliveries(spec_path: Path) -> DeliveredObjects:
    """What deliveries of this spec write; talks to nobody.

    Raises:
        SpecError: when the spec is wrong.
        UsageError: its fleet is no cluster.
    """
    spec = read_spec(spec_path)
    fleet = on_clusters(spec)
    # Neither names nor fields depend on the version.
    engine = Engine(version="0", digest="", model=spec.metadata.name, image="none")
    rendered = (each for region in fleet.regions for each in rendering(spec, fleet, region)(engine))
    return DeliveredObjects(spec.metadata.name, delivered_objects(rendered))
