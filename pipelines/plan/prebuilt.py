"""How clusters start an image that tidegate did not build, and what a delivery does without because of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engine_images.arguments.image import WeightsSpec
from engine_images.launch import (
    ModelPlace,
    is_known,
    prebuilt_arguments,
    prebuilt_environment,
)
from engine_images.spec import EngineSettings
from pipelines.spec.delivery import Delivery
from registry.conventions import MODEL_FOLDER
from registry.model import ModelVersion
from rollouts.manifests.conventions import PORT
from rollouts.manifests.objects.rollout import CACHE_FOLDER, CLAIM_FOLDER, MOUNTS, SCRATCH_FOLDER
from rollouts.manifests.pod_spec import whole_seconds
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ImageLaunch, WeightsPull
from tidegate.core.units import format_duration


def image_launch(
    spec: Delivery, fleet: ArgoFleetSpec, settings: EngineSettings, *, version: str, digest: str
) -> ImageLaunch | None:
    """How an engine of these settings is started; None for an image of tidegate's own making.

    `settings` are of this engine, which may be those of another time than the spec's.
    """
    if settings.image is None:
        return None
    place = _place(settings.weights_place, version=version, digest=digest)
    drain = whole_seconds(fleet.pod.drain - fleet.pod.linger)
    return ImageLaunch(
        arguments=prebuilt_arguments(settings, place, name=spec.metadata.name, port=PORT, drain_seconds=drain),
        environment=prebuilt_environment(place),
        ends_its_answers=is_known(settings.vllm),
        claim=settings.weights_place.claim or "",
        pull=_pull(spec, settings.weights_place, version=version, digest=digest),
        accelerators=settings.accelerator_count,
    )


def _place(weights: WeightsSpec, *, version: str, digest: str) -> ModelPlace:
    def filled(text: str | None) -> str:
        return (text or "").replace("{version}", version).replace("{digest}", digest)

    if weights.model:
        return ModelPlace(model=filled(weights.model), revision=filled(weights.revision))
    if weights.path:
        return ModelPlace(model=filled(f"{CLAIM_FOLDER}/{weights.path}" if weights.claim else weights.path))
    return ModelPlace(model=f"{_pulled(digest)}/{MODEL_FOLDER}")


def _pulled(digest: str) -> str:
    """A folder for each version: a cache that pods share has several."""
    return f"{MOUNTS[CACHE_FOLDER]}/{digest}"


def _pull(spec: Delivery, weights: WeightsSpec, *, version: str, digest: str) -> WeightsPull | None:
    if not weights.from_registry:
        return None
    workflow = spec.workflow
    secrets = workflow.secrets.registry if workflow else ()
    mlflow = weights.tracking_uri or (workflow.tracking_uri if workflow else None)
    uri = ModelVersion.uri_of(spec.model.name, version)
    return WeightsPull(
        image=weights.image or (workflow.image if workflow else ""),
        command=("tidegate", "model", "download", uri, _pulled(digest), "--digest", digest),
        environment={"MLFLOW_TRACKING_URI": mlflow or "", "TIDEGATE_STATE": f"{MOUNTS[SCRATCH_FOLDER]}/tidegate"},
        secrets=secrets if weights.secrets is None else weights.secrets,
    )


def engine_notes(spec: Delivery) -> Iterator[str]:
    """What a person who reads the plan must know of a prebuilt image; nothing of an engine that is built here."""
    settings = spec.engine
    if settings.image is None or not isinstance(spec.fleet, ArgoFleetSpec):
        return
    start = format_duration(spec.fleet.pod.start_within)
    yield (
        f"{settings.image.reference} is served as it is: it has no proven compile cache, so every engine compiles when "
        f"it starts (within fleet.pod.start_within, {start}), and nobody has compared its answers with eager ones; "
        "users are its first requests, none warm it up, and no test inference watches it, only /health"
    )
    if settings.image.by_tag and not settings.image.is_pinned:
        yield f"{settings.image.reference} is a tag: engines of one version may run different images"
    if not (weights := settings.weights_place).from_registry:
        place = f"{weights.path} of the claim {weights.claim}" if weights.claim else f"{weights.path} of the image"
        if weights.model:
            place = f"{weights.model} of the hub" + (f" at {weights.revision}" if weights.revision else "")
        yield f"its weights come from {place}: nobody proves them against the registry's digests"
    if not is_known(settings.vllm):
        drain = format_duration(spec.fleet.pod.drain)
        yield f"every engine that goes takes all of fleet.pod.drain ({drain}) for it, with open answers or without"
