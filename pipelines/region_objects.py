"""What a region's cluster needs for a delivery: what `rollouts` renders, with what `slo` makes of its promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from pipelines.spec import CanaryStage, Delivery
from rollouts.kube.model import Json
from rollouts.manifests.gpus import CPU
from rollouts.manifests.parts import Part
from rollouts.manifests.release import Release, Trial
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec, Strategy
from slo.catalogue import slo_of
from slo.kubernetes.analysis import analysis_template
from slo.kubernetes.conventions import DELIVERY
from slo.kubernetes.manifest import object_name
from slo.kubernetes.pod_monitor import engine_monitor, gpu_monitor
from slo.kubernetes.question import Stage
from slo.model import KubernetesNames, Slo
from slo.spec import CountedBy
from slo.windows import windows_for
from tidegate.core.errors import UsageError
from tidegate.core.model import Value


class RegionObjects(Value):
    """Everything, in the order in which it can be applied."""

    objects: tuple[Json, ...]
    left_out: tuple[str, ...] = ()
    """Promises that no analysis in the cluster can watch, each with the reason."""


def region_objects(
    spec: Delivery, fleet: ArgoFleetSpec, release: Release, *, parts: Sequence[Part] = tuple(Part)
) -> RegionObjects:
    """The objects of one region.

    Raises:
        UsageError: as `rollouts.manifests.render.render`.
    """
    analyses, left_out = _analyses(spec, fleet, release)
    objects = render(
        fleet, release, trial=trial_of(spec), analyses=analyses, monitors=tuple(_monitors(spec, release)), parts=parts
    )
    return RegionObjects(objects=objects, left_out=left_out)


def trial_of(spec: Delivery) -> Trial:
    """What the delivery's stages give a canary: copies in its shadow, users in its canary stage."""
    mirror = spec.shadow.percent if spec.shadow else 0
    return Trial(mirror=mirror, weights=spec.canary.weights if spec.canary else ())


def _analyses(spec: Delivery, fleet: ArgoFleetSpec, release: Release) -> tuple[tuple[Json, ...], tuple[str, ...]]:
    stage = Stage(length=_watched(spec), background=fleet.strategy is Strategy.CANARY)
    templates: list[Json] = []
    left_out: list[str] = []
    for item in spec.slos:
        slo = slo_of(item, service=release.delivery, counted_by=CountedBy.ENGINE)
        try:
            templates.append(_template(slo, stage, fleet, release))
        except UsageError as error:
            left_out.append(error.message)
    return tuple(templates), tuple(left_out)


def _template(slo: Slo, stage: Stage, fleet: ArgoFleetSpec, release: Release) -> Json:
    names = _names(release, "background" if stage.background else "step", slo)
    prometheus = fleet.regions[release.region].prometheus.for_rollouts
    return dict(analysis_template(slo, stage, names=names, prometheus=prometheus, windows=windows_for(slo.window)))


def _watched(spec: Delivery) -> timedelta:
    return (spec.canary or CanaryStage()).within


def _monitors(spec: Delivery, release: Release) -> Iterator[Json]:
    yield dict(engine_monitor(release.delivery, _names(release, "engines"), spec.scrape_interval))
    if release.accelerator != CPU:
        yield dict(gpu_monitor(release.delivery, _names(release, "gpus")))


def _names(release: Release, suffix: str, slo: Slo | None = None) -> KubernetesNames:
    """As `tidegate slo export` names the same objects: a dot joins two names that have none."""
    identity = f"{release.delivery}.{slo.name}" if slo else release.delivery
    return KubernetesNames(name=object_name(identity, suffix), labels={DELIVERY: release.delivery})
