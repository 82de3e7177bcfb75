"""What every page shows of a gate, a step and an ending: the report, and the live page."""

from __future__ import annotations

from typing import Any

from gates.model import Outcome
from pipelines.story import Gate, StepState, Story
from pipelines.wording import comparisons, others

VERDICT_MARKS = {
    Outcome.PASS: "✓",
    Outcome.RUNNING: "…",
    Outcome.INCONCLUSIVE: "?",
    Outcome.ERROR: "!",
    Outcome.FAIL: "✗",
}
STEP_MARKS = {
    StepState.WAITING: "·",
    StepState.RUNNING: "▸",
    StepState.DONE: "✓",
    StepState.FAILED: "✗",
    StepState.SKIPPED: "–",
    StepState.UNDONE: "↩",
}


def tone(story: Story) -> str:
    """The class of its colour: a delivery that was interrupted or failed is bad news too."""
    return {"delivered": "good", "inconclusive": "unsure", None: "unsure"}.get(story.outcome, "bad")


def gate_row(gate: Gate) -> dict[str, Any]:
    """What a gate said last: the numbers of both arms side by side, then those that stand alone."""
    verdict = gate.latest
    pairs = [(pair.name, f"{pair.canary} against {pair.stable}") for pair in comparisons(verdict.numbers)]
    return {
        "name": gate.name,
        "step": gate.step,
        "outcome": str(verdict.outcome),
        "mark": VERDICT_MARKS[verdict.outcome],
        "reason": verdict.reason,
        "numbers": pairs + others(verdict.numbers),
    }
