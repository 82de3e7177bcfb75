"""What is not the same in every region, where a spec has one value for all. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelines.draft.engine import accelerator_of, served_by
from pipelines.draft.model import DraftNoteKind, Sketch
from rollouts.survey.model import ServingSurvey

_FACTS: Mapping[str, Callable[[ServingSurvey], object]] = {
    "kind of workload": lambda each: str(each.kind),
    "image": lambda each: each.pod.engine.image,
    "image's digest": lambda each: each.pod.engine.digest,
    "model": lambda each: served_by(each.pod.engine).command.model,
    "accelerator": lambda each: accelerator_of(each.pod).name,
    "accelerators": lambda each: dict(each.pod.engine.accelerators),
    "cpu": lambda each: each.pod.engine.cpu,
    "memory": lambda each: each.pod.engine.memory,
    "canary weights": lambda each: list(each.strategy.weights),
    "autoscaler": lambda each: (
        each.scaler and f"{each.scaler.kind} {each.scaler.min_replicas}-{each.scaler.max_replicas}"
    ),
    "router": lambda each: str(each.traffic.router),
    "gateway": lambda each: f"{each.traffic.gateway_namespace}/{each.traffic.gateway}",
    "environment": lambda each: sorted(one.name for one in each.pod.engine.environment),
    "sidecars": lambda each: sorted(each.pod.sidecars),
}


def note_differences(sketch: Sketch, regions: Mapping[str, ServingSurvey]) -> None:
    """Say each by region; the draft has what the first one says."""
    for subject, fact in (*_FACTS.items(), *_arguments(regions).items()):
        said = {region: fact(each) for region, each in regions.items()}
        first, *others = said.values()
        if any(each != first for each in others):
            told = "; ".join(f"{region} {_text(value)}" for region, value in said.items())
            action = "the draft has what the first one says; a spec has one for all regions, so make them the same"
            sketch.note(DraftNoteKind.DIFFERS, subject, told, action)


def _arguments(regions: Mapping[str, ServingSurvey]) -> Mapping[str, Callable[[ServingSurvey], object]]:
    """One fact for each argument that any of them has."""
    names = {name for each in regions.values() for name in served_by(each.pod.engine).command.args}
    return {f"argument --{name}": _argument(name) for name in sorted(names)}


def _argument(name: str) -> Callable[[ServingSurvey], object]:
    return lambda each: served_by(each.pod.engine).command.args.get(name)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{amount} {name}" for name, amount in value.items()) or "none"
    return "none" if value in (None, "") else str(value)
