"""Where prompts come from: the golden set, and what users are known to ask."""

from __future__ import annotations

from pathlib import Path

from gates.answers.golden import GoldenPrompt, load_golden
from pipelines.spec import Delivery
from tidegate.core.spec import Problem, SpecError, text_in


def golden_set(spec: Delivery, folder: Path) -> tuple[GoldenPrompt, ...]:
    """The golden set of the offline stage; empty when there is no such stage."""
    if spec.offline is None:
        return ()
    path = folder / spec.offline.dataset
    return load_golden(path, spec.gates.quality.scorer) if spec.gates.quality else load_golden(path)


def user_prompts(spec: Delivery, folder: Path) -> tuple[str, ...]:
    """What users ask, one prompt a line; the golden set's prompts when the spec names no file.

    Raises:
        SpecError: when the file cannot be read or has no prompt.
    """
    # Answers are only compared with each other here, so questions with known answers serve as well.
    if spec.traffic is None or spec.traffic.prompts is None:
        return tuple(entry.prompt for entry in golden_set(spec, folder))
    path = folder / spec.traffic.prompts
    lines = text_in(path, "one prompt a line").splitlines()
    prompts = tuple(line.strip() for line in lines if line.strip())
    if not prompts:
        raise SpecError([Problem(str(path), 1, "", "no prompts", "one prompt a line")])
    return prompts
