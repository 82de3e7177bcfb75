"""Canary steps in words, and where a weight is among them."""

from __future__ import annotations

from collections.abc import Sequence

from rollouts.kube.model import Json


def step_text(step: Json) -> str:
    """One step as kubectl prints it (`CanaryStepString`); routes and plugins, which upstream leaves out, by name."""
    if step.get("setWeight") is not None:
        return f"setWeight: {step['setWeight']}"
    if step.get("pause") is not None:
        duration = step["pause"].get("duration")
        return "pause" if duration is None else f"pause: {duration}"
    for kind in ("experiment", "analysis"):
        if step.get(kind) is not None:
            return kind
    if step.get("setCanaryScale") is not None:
        return _scale_text(step["setCanaryScale"])
    for kind in ("setHeaderRoute", "setMirrorRoute", "plugin"):
        if step.get(kind) is not None:
            return f"{kind}: {step[kind].get('name', '')}"
    return "invalid"


def step_of_weight(steps: Sequence[Json], weight: int) -> int | None:
    """The index of the step that sets this weight; None when none does."""
    return next((index for index, step in enumerate(steps) if step.get("setWeight") == weight), None)


def _scale_text(scale: Json) -> str:
    if scale.get("weight") is not None:
        return f"setCanaryScale{{weight: {scale['weight']}}}"
    if scale.get("matchTrafficWeight"):
        return "setCanaryScale{matchTrafficWeight: true}"
    if scale.get("replicas") is not None:
        return f"setCanaryScale{{replicas: {scale['replicas']}}}"
    return "invalid"
