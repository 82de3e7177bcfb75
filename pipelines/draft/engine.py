"""The `engine` part of a draft: the image that serves today, its vLLM, its arguments, its accelerators. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from engine_images.arguments.command import VllmCommand, read_vllm_command
from pipelines.draft.model import Sketch
from rollouts.manifests.nodes_spec import CPU, GPU, GPUS, GpuLabels
from rollouts.survey.model import PodFacts, ServingContainer, ServingSurvey, VolumeMount

ENGINES_PAGE = "docs/guides/your-engines.md"
NO_VERSION = "0.32.0"
"""Of a vLLM that no tag names."""
NO_IMAGE = "registry.example.com/tidegate@sha256:" + "0" * 64
NO_REGISTRY = "https://mlflow.example.com"
LIKELY_GPU = "nvidia-h100-80gb"

_PARALLEL = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "prefill-context-parallel-size")
_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_TAG = re.compile(r":v?(\d+\.\d+\.\d+)[^/]*$")


class ServedBy(NamedTuple):
    """What serves today."""

    version: str
    """Of vLLM; empty where no tag says it."""
    command: VllmCommand


class FoundAccelerator(NamedTuple):
    """An accelerator, and how nodes with it are told."""

    name: str
    labels: GpuLabels | None
    keys: frozenset[str]
    """Of the labels that tell it."""
    source: str
    """Empty where it is only likely."""


def served_by(container: ServingContainer) -> ServedBy:
    """What the container says of its vLLM."""
    tag = _TAG.search(container.image.partition("@")[0])
    version = tag[1] if tag else ""
    command = read_vllm_command(
        container.command,
        container.args,
        image=container.image,
    )
    return ServedBy(version, command)


def accelerator_of(pod: PodFacts) -> FoundAccelerator:
    """What its engine computes on: by the pod's own node selector, else by the node that it runs on."""
    if GPU not in pod.engine.accelerators:
        return FoundAccelerator(CPU, None, frozenset(), f"the resources of container {pod.engine.name}")
    for labels, source in ((pod.node_selector, "the pod's node selector"), (pod.node_labels, "the labels of its node")):
        if found := _by_labels(labels, source):
            return found
    return FoundAccelerator(LIKELY_GPU, None, frozenset(), "")


def _by_labels(labels: Mapping[str, str], source: str) -> FoundAccelerator | None:
    found = [
        FoundAccelerator(name, labeller, frozenset(told), source)
        for name, gpu in GPUS.items()
        for labeller, told in gpu.labels.items()
        if told.items() <= labels.items()
    ]
    return max(found, key=lambda each: len(each.keys), default=None)


def put_engine(sketch: Sketch, lead: ServingSurvey) -> None:
    """What one engine is."""
    container, served = lead.pod.engine, served_by(lead.pod.engine)
    _put_image(sketch, container)
    _put_weights(sketch, container, served.command)
    _put_vllm(sketch, container, served)
    _put_accelerator(sketch, lead.pod, served.command)
    left = {each.name for each in served.command.left}
    if "enforce-eager" in left:
        sketch.found("engine.compile", {"mode": "none"}, "its argument --enforce-eager")


def _put_image(sketch: Sketch, container: ServingContainer) -> None:
    source = f"container {container.name}"
    if container.digest:
        by = "" if "@" in container.image else f", now {container.image}, by the digest that its pods run"
        sketch.found("engine.image", f"{_repository(container.image)}@{container.digest}", source + by)
    else:
        sketch.decide(
            "engine.image",
            {"reference": container.image, "by_tag": True},
            f"from {source}; no pod says its digest, and a tag may name another image tomorrow",
            f"`docker buildx imagetools inspect {container.image}` prints it; {ENGINES_PAGE}",
        )
    sketch.comments[("engine", "image")].append(
        "started by its own entrypoint, with vLLM's arguments; without `image`, `tidegate engine build` makes one"
    )
    if container.command and "vllm-openai" not in container.image:
        sketch.unsupported(
            f"command of container {container.name}",
            "the pod starts the image by a command of its own; tidegate starts it by its entrypoint",
            f"the entrypoint has to take vLLM's arguments: {ENGINES_PAGE}",
        )


def _repository(image: str) -> str:
    named = image.partition("@")[0]
    head, slash, last = named.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _put_weights(sketch: Sketch, container: ServingContainer, command: VllmCommand) -> None:
    mounted = _mount_of(command.model, container.mounts)
    if mounted and mounted.claim:
        inside = command.model[len(mounted.path) :].strip("/")
        folder = "/".join(part for part in (mounted.within, inside) if part)
        sketch.decide(
            "engine.weights",
            {"claim": mounted.claim, "path": _folder_of_each(folder)},
            f"today {command.model} on claim {mounted.claim}, whichever version that is; each version needs a folder "
            "of its own, here one with the number of the registered version at its end",
            f"{ENGINES_PAGE}#weights",
        )
    elif _HUB.fullmatch(command.model):
        revision = f"revision {command.revision}" if command.revision else "no revision named"
        sketch.decide(
            "engine.weights",
            {"model": command.model, "revision": "v{version}"},
            f"today {command.model} of the hub, {revision}; each version needs a revision of its own, here a tag "
            "v1, v2, ... by the number of the registered version",
            f"{ENGINES_PAGE}#weights",
        )
    else:
        sketch.decide(
            "engine.weights",
            {"image": NO_IMAGE, "tracking_uri": NO_REGISTRY},
            f"today {command.model or 'from where its command does not say'}; here a container with tidegate brings "
            "each version from MLflow: its image (tidegate's Containerfile makes one), and MLflow as pods reach it",
            f"{ENGINES_PAGE}#weights",
        )


def _folder_of_each(folder: str) -> str:
    """Where each version's files lie, next to those of today where these are in a folder with a version's number."""
    parts = folder.split("/") if folder else []
    above = parts[:-1] if parts and parts[-1].isdigit() else parts
    return "/".join([*above, "{version}"])


def _mount_of(model: str, mounts: tuple[VolumeMount, ...]) -> VolumeMount | None:
    """The deepest volume that a folder lies on."""
    inside = [each for each in mounts if model == each.path or model.startswith(f"{each.path.rstrip('/')}/")]
    return max(inside, key=lambda each: len(each.path), default=None)


def _put_vllm(sketch: Sketch, container: ServingContainer, served: ServedBy) -> None:
    if served.version:
        sketch.found("engine.vllm.version", served.version, f"the tag of {container.image}")
    else:
        sketch.decide("engine.vllm.version", NO_VERSION, f"the version of vLLM in {container.image}; its tag says none")
    command = served.command
    if not command.recognized:
        sketch.decide(
            "engine.vllm.args",
            {},
            f"container {container.name} starts no `vllm serve` that can be read here",
            "write its arguments as docs/reference/spec.md has them; name another container with --container",
        )
        return
    if command.args:
        sketch.found("engine.vllm.args", dict(command.args), f"the command line of container {container.name}")
    for left in command.left:
        if left.name == "enforce-eager":
            continue
        sketch.unsupported(f"argument --{left.name}", f"left out: {left.why}", "docs/reference/spec.md#engine")


def _put_accelerator(sketch: Sketch, pod: PodFacts, command: VllmCommand) -> None:
    found = accelerator_of(pod)
    asked = ", ".join(f"{count} {name}" for name, count in pod.engine.accelerators.items())
    if found.source:
        sketch.found("engine.accelerator", found.name, found.source)
    else:
        why = f"it asks for {asked}, and neither its node selector nor a node that may be read says of which kind"
        sketch.decide("engine.accelerator", found.name, why, "docs/reference/engine-checks.md lists them")
    count = prod(_size(command.args.get(name)) for name in _PARALLEL)
    if count > 1:
        sketch.put("engine.accelerator_count", count, "the parallel sizes of its arguments, multiplied")
    given = sum(amount for name, amount in pod.engine.accelerators.items())
    if found.name != CPU and given != count:
        sketch.unsupported(
            "accelerators",
            f"the pod asks for {asked}, its arguments use {count}; tidegate asks for as many as the arguments use",
            "set the parallel sizes in engine.vllm.args",
        )
    if found.name == CPU and asked:
        sketch.unsupported(
            "accelerators", f"it asks for {asked}", "docs/reference/engine-checks.md lists what is known"
        )


def _size(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1
