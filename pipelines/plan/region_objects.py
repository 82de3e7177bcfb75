"""What each region's cluster needs for a delivery, where it is, and how many engines it holds at once. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from pipelines.plan.engines import with_pod_changes
from pipelines.plan.prebuilt import image_launch
from pipelines.spec.delivery import CanaryStage, Delivery
from pipelines.spec.workflow import account_of
from rollouts.cluster.model import Render
from rollouts.manifests.admission import user_of
from rollouts.manifests.conventions import RenderPart
from rollouts.manifests.manifest import Release
from rollouts.manifests.objects.rollout import steps_of
from rollouts.manifests.pod_spec import CPU
from rollouts.manifests.render import render
from rollouts.manifests.spec import ArgoFleetSpec, ClusterFleetSpec
from rollouts.manifests.theirs_spec import RouteFleetSpec
from rollouts.model import Engine
from slo.catalogue import slo_of
from slo.kubernetes.analysis import analysis_template
from slo.kubernetes.pod_monitor import engine_monitor, gpu_monitor
from slo.model import KubernetesNames, Slo
from slo.spec import CountedBy
from tidegate.core.errors import UsageError
from tidegate.core.model import Json, Value
from tidegate.core.names import DELIVERY, object_name
from tidegate.core.units import format_duration


def guard_image(spec: Delivery) -> str:
    """By digest; empty where the spec wants no guard, or names no image for one."""
    if not isinstance(spec.fleet, ClusterFleetSpec) or spec.fleet.guard is None:
        return ""
    return spec.fleet.guard.image or (spec.workflow.image if spec.workflow else "")


def unprotected(spec: Delivery) -> Iterator[str]:
    """What is lost where regions have no guard, no disruption budget or no network policy, or two backends alone."""
    if isinstance(spec.fleet, ClusterFleetSpec) and not guard_image(spec):
        unnamed = "neither `fleet.guard` nor a `workflow` names an image"
        why = unnamed if spec.fleet.guard else "`fleet.guard` is null"
        yield (
            f"no region has a guard: {why}; a trial without a carrier for {format_duration(spec.fleet.unattended)} "
            "goes on until somebody says `tidegate rollback`"
        )
    if isinstance(spec.fleet, ArgoFleetSpec) and spec.fleet.unavailable is None:
        yield "`fleet.unavailable` is null: who drains nodes may take all engines of a region at once"
    if isinstance(spec.fleet, ArgoFleetSpec) and spec.fleet.network is None:
        yield (
            "`fleet.network` is null: any pod of the cluster may ask an engine, past all weights, and engines may "
            "reach any address"
        )
    if isinstance(spec.fleet, RouteFleetSpec):
        if spec.fleet.keep and not guard_image(spec):
            yield "without a guard `fleet.keep` does nothing: it is the guard that scales down"
        yield "the next version starts where the one before the last promotion is: from then on none goes back to that"


class RegionObjects(Value):
    """Everything, in the order in which it can be applied."""

    objects: tuple[Json, ...]
    left_out: tuple[str, ...] = ()
    """Promises that no analysis in the cluster can watch, each with the reason."""


def region_objects(
    spec: Delivery, fleet: ArgoFleetSpec, release: Release, *, parts: Sequence[RenderPart] = tuple(RenderPart)
) -> RegionObjects:
    """The objects of one region.

    Raises:
        UsageError: as `rollouts.manifests.render.render`.
    """
    analyses, left_out = _analyses(spec, fleet, release)
    objects = render(fleet, release, analyses=analyses, monitors=tuple(_monitors(spec, release)), parts=parts)
    return RegionObjects(objects=objects, left_out=left_out)


def _accounts(spec: Delivery, region: str) -> tuple[str, ...]:
    """Steps of a workflow act as their own account in the cluster that they run in, and as the driver elsewhere."""
    fleet = spec.fleet
    if spec.workflow is None or not isinstance(fleet, ClusterFleetSpec) or fleet.regions[region].context:
        return ()
    return (user_of(spec.workflow.namespace or fleet.namespace, account_of(spec.metadata.name)),)


def _analyses(spec: Delivery, fleet: ArgoFleetSpec, release: Release) -> tuple[tuple[Json, ...], tuple[str, ...]]:
    stage = (spec.canary or CanaryStage()).within
    prometheus = fleet.regions[release.region].prometheus.for_rollouts
    templates: list[Json] = []
    left_out: list[str] = []
    for item in spec.slos:
        slo = slo_of(item, service=release.delivery, counted_by=CountedBy.ENGINE, sources=spec.metrics.sources)
        try:
            names = _names(release, "background", slo)
            templates.append(analysis_template(slo, stage=stage, background=True, names=names, prometheus=prometheus))
        except UsageError as error:
            left_out.append(error.message)
    return tuple(templates), tuple(left_out)


def _monitors(spec: Delivery, release: Release) -> Iterator[Json]:
    yield engine_monitor(release.delivery, _names(release, "engines"), spec.scrape_interval)
    if release.accelerator != CPU:
        yield gpu_monitor(release.delivery, _names(release, "gpus"))


def _names(release: Release, suffix: str, slo: Slo | None = None) -> KubernetesNames:
    """As `tidegate slo export` names the same objects: a dot joins two names that have none."""
    identity = f"{release.delivery}.{slo.name}" if slo else release.delivery
    return KubernetesNames(name=object_name(identity, suffix), labels={DELIVERY: release.delivery})


_PINNED = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_VERSION = re.compile(r"[1-9][0-9]*")


def release_of(
    spec: Delivery,
    fleet: ArgoFleetSpec,
    region: str,
    *,
    version: str = "",
    image: str = "",
    digest: str = "",
    public_keys: str = "",
    repositories: Sequence[str] = (),
    serving: bool = True,
) -> Release:
    """One engine in a region, as the command line names it.

    `image` is by digest, empty for the spec's own `engine.image`; `digest` is needed where the weights come from the
    registry. One of `public_keys` (PEM) has to have signed the engine, which has to come from one of `repositories`, if
    there are any. Without `serving` nothing is rendered that depends on the engine, and none need be named.

    Raises:
        UsageError: an image that may be another one tomorrow, no number of a version, weights without a digest.
    """
    if not serving and not version:
        version, digest = "1", "0" * 64
        image = f"any@sha256:{digest}"
    image = image or (spec.engine.image.reference if spec.engine.image else "")
    _require_certain_engine(spec, version, image, digest)
    launch = image_launch(spec, fleet, spec.engine, version=version, digest=digest)
    engine = Engine(version=version, digest=digest, model=spec.metadata.name, image=image, launch=launch)
    return region_release(spec, region, engine, public_keys=public_keys, repositories=repositories)


def _require_certain_engine(spec: Delivery, version: str, image: str, digest: str) -> None:
    def found(value: str) -> str:
        return repr(value) if value else "none"

    if not _PINNED.fullmatch(image) and not (spec.engine.image and spec.engine.image.by_tag):
        raise UsageError(
            f"--image: found {found(image)}; expected REPOSITORY@sha256:DIGEST, as `engine push` prints it",
            hint="`--part setup` of `render` needs none",
        )
    if not _VERSION.fullmatch(version):
        raise UsageError(f"--version: found {found(version)}; expected the number of a model version")
    if spec.engine.image and spec.engine.weights_place.from_registry and not digest:
        raise UsageError(
            "--digest: found none; the engine's weights are brought from the registry and proven against it",
            hint=f"`tidegate model list {spec.model.name} --output json` has it",
        )


def region_release(
    spec: Delivery, region: str, engine: Engine, *, public_keys: str = "", repositories: Sequence[str] = ()
) -> Release:
    """An engine in a region, with what the delivery's spec says of it.

    `public_keys` and `repositories` are as for `release_of`.
    """
    fleet = spec.fleet
    asked = isinstance(fleet, ArgoFleetSpec) and (fleet.driver or fleet.admission)
    return Release(
        delivery=spec.metadata.name,
        region=region,
        version=engine.version,
        digest=engine.digest,
        image=engine.image,
        launch=engine.launch,
        public_keys=public_keys,
        accelerator=str(spec.engine.accelerator),
        accelerators=spec.engine.accelerator_count,
        key_policy=str(spec.engine.compile.mismatch),
        # What the stages give a canary: copies in its shadow, users in its canary stage.
        mirror=spec.shadow.percent if spec.shadow else 0,
        weights=spec.canary.weights if spec.canary else (),
        guard=guard_image(spec),
        asked=bool(spec.arm_services(region)),
        samples=spec.samples is not None,
        driver=asked or spec.workflow is not None,
        repositories=tuple(repositories),
        accounts=_accounts(spec, region),
    )


def rendering(spec: Delivery, fleet: ArgoFleetSpec, region: str, public_keys: str = "") -> Render:
    """What makes the objects that a delivery itself applies there; an administrator's part is there already."""

    def render(engine: Engine) -> tuple[Json, ...]:
        release = region_release(spec, region, engine, public_keys=public_keys)
        of_engine = fleet if engine.pods is None else with_pod_changes(fleet, engine.pods)
        return region_objects(spec, of_engine, release, parts=(RenderPart.SERVING,)).objects

    return render


class EngineCount(Value):
    """Engines of one region."""

    region: str
    serving: int
    """Of the stable; with an autoscaler the number that is planned with."""
    first: int
    """Next to it, while a canary has no users."""
    most: int
    """Next to it, at the height of a trial: what has to be free before one begins."""
    warm: int
    """Kept behind it after each promotion, so that going back needs no start: they hold their place besides."""
    per_hour: float | None = None
    """What `most` costs more in an hour of a trial, in `currency`; None when the spec has no `cost`."""
    currency: str = ""


def engine_counts(spec: Delivery) -> tuple[EngineCount, ...]:
    """One for each region in the order of the waves; none for the fleet on this machine."""
    fleet = spec.fleet
    return (
        tuple(_count(spec, fleet, region) for region in spec.regions.names) if isinstance(fleet, ArgoFleetSpec) else ()
    )


def _count(spec: Delivery, fleet: ArgoFleetSpec, region: str) -> EngineCount:
    """All its engines again: a version is promoted when it is whole, and the stable one stays whole until then."""
    replicas, some = fleet.replicas_in(region), Engine(version="1", digest="", model="", image="any")
    steps = steps_of(region_release(spec, spec.regions.names[0], some), fleet.canary, replicas)
    scale = steps[0]["setCanaryScale"]
    first = int(scale.get("replicas") or math.ceil(replicas * scale["weight"] / 100) or 1)
    most = max(first, replicas)
    return EngineCount(
        region=region,
        serving=replicas,
        first=first,
        most=most,
        warm=replicas if fleet.previous else 0,
        per_hour=most * spec.cost.per_engine_hour if spec.cost else None,
        currency=spec.cost.currency if spec.cost else "",
    )
