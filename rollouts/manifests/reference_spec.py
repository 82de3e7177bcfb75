"""`fleet: {kind: argo, rollout: ...}` of a delivery: Rollouts of others, by reference. Nothing of them is taken over.

tidegate changes the fields of their pod template that `set` names, moves their steps, aborts and promotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rollouts.manifests.fields import ObjectName
from rollouts.manifests.spec import ClusterFleetSpec, ClusterRegionSpec, FleetValidationContext
from rollouts.model import Engine
from tidegate.core.access import Url
from tidegate.core.metrics import VERSION_PLACE, ArmLabels, MetricSource, PresetName
from tidegate.core.model import Loc, SpecConflict, SpecModel
from tidegate.core.units import Duration

PLACES = ("{image}", "{version}", "{digest}")
"""What a field may be made of: the engine's image, the number of the model version, the digest of its files."""


def _with_place(text: str) -> str:
    rest = text
    for place in PLACES:
        rest = rest.replace(place, "")
    if rest == text or "{" in rest or "}" in rest:
        raise ValueError(f"text with at least one of {', '.join(PLACES)}, and no other braces")
    return text


FieldText = Annotated[str, AfterValidator(_with_place), Field(max_length=500)]


def filled(text: str, engine: Engine) -> str:
    """A field's text for that engine."""
    # Of a change of the engine alone the name has more than the version's number.
    said = (engine.image, engine.version.partition("-")[0], engine.digest)
    for place, value in zip(PLACES, said, strict=True):
        text = text.replace(place, value)
    return text


class SetSpec(SpecModel):
    """Fields of the container that say which version it serves; their template has each of them already."""

    image: FieldText | None = None
    args: Mapping[Annotated[str, Field(pattern=r"^-[^\s=]+$")], FieldText] = {}
    """By the argument's name, such as `--revision`; in `args` or `command` of the container."""
    env: Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")], FieldText] = {}
    """By the variable's name; it has a value, not a reference."""

    def contradictions(self) -> Iterator[SpecConflict]:
        """Nothing to set."""
        if not self.fields:
            yield SpecConflict((), "nothing", "image, args or env: what of the container differs between two versions")

    @property
    def fields(self) -> Mapping[str, str]:
        """The text of each by what it is called: `image`, `--revision`, `$MODEL`."""
        image = {"image": self.image} if self.image else {}
        return {**image, **self.args, **{f"${name}": text for name, text in self.env.items()}}


class RolloutReference(SpecModel):
    """A Rollout that somebody else applies, the same in every region."""

    name: ObjectName
    container: ObjectName
    """The one that serves, in its pod template."""
    workload: ObjectName | None = None
    """The Deployment whose pod template it has, as its `workloadRef` says; None where it has its own."""
    set: SetSpec = SetSpec(image="{image}")
    stable_service: ObjectName
    canary_service: ObjectName
    route: ObjectName
    """The HTTPRoute or VirtualService whose weights its controller moves."""

    @property
    def services(self) -> tuple[str, str]:
        """Both, or the InferencePools of the same names that users reach."""
        return self.stable_service, self.canary_service


class ReferencedRegion(ClusterRegionSpec):
    """One region where somebody else applies the Rollout."""

    stable_url: Url | None = None
    """Where the stable answers, whatever the weights; for stages that ask engines."""
    canary_url: Url | None = None
    """Where the canary answers, whatever the weights."""


class TheirsFleetSpec(ClusterFleetSpec):
    """A fleet whose objects somebody else applies."""

    start_within: Duration = timedelta(minutes=30)
    """How long a version may take from being asked for until all its engines are ready."""

    @property
    def engine_starts_within(self) -> timedelta:
        return self.start_within

    @property
    def sources(self) -> tuple[MetricSource, ...]:
        """Which series are read unless `metrics.sources` says others; `{version}` stands for a value of its label."""
        arms = ArmLabels(label=self.arm_label, stable=VERSION_PLACE, canary=VERSION_PLACE, shadow=VERSION_PLACE)
        return (MetricSource(preset=PresetName.VLLM, arms=arms),)

    @property
    def arm_label(self) -> str:
        """Of series in Prometheus: it tells engines of the two arms apart."""
        raise NotImplementedError

    @staticmethod
    def one_image_twice(where: Loc, texts: Iterable[str], context: FleetValidationContext) -> Iterator[SpecConflict]:
        """Nothing that is set tells two versions apart."""
        if context.same_image and all(text == "{image}" for text in texts):
            expected = "an argument, variable or field with {version} or {digest} too, or an image for each version"
            yield SpecConflict(where, "the image alone, and `engine.image` is one for all versions", expected)


POD_HASH = "rollouts_pod_template_hash"
"""Of the label `rollouts-pod-template-hash` of pods, as a PodMonitor with it in `podTargetLabels` brings it.

No label of others says which version a pod serves."""


class ReferencedFleetSpec(TheirsFleetSpec):
    """Rollouts of others on Kubernetes."""

    kind: Literal["argo"]
    rollout: RolloutReference
    regions: Mapping[ObjectName, ReferencedRegion] = Field(min_length=1)

    @property
    def arm_label(self) -> str:
        return POD_HASH

    def contradictions(self) -> Iterator[SpecConflict]:
        """Two regions in one cluster, an arm without an address of its own."""
        yield from self.one_cluster_twice("this is the same Rollout")
        for name, region in self.regions.items():
            if bool(region.stable_url) != bool(region.canary_url) or (
                region.stable_url and region.stable_url == region.canary_url
            ):
                expected = "stable_url and canary_url, each an address at which one of the two answers; or neither"
                yield SpecConflict(("regions", name, "canary_url"), str(region.canary_url or "nothing"), expected)

    def conflicts_with(self, context: FleetValidationContext) -> Iterator[SpecConflict]:
        yield from super().conflicts_with(context)
        yield from self.one_image_twice(("rollout", "set"), self.rollout.set.fields.values(), context)
        for name, region in self.regions.items():
            if context.asks_engines and region.canary_url is None:
                expected = f"stable_url and canary_url: {', '.join(context.asks_engines)} ask one arm alone"
                yield SpecConflict(("regions", name), "no addresses of the two Services", expected)
