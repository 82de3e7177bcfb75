"""A delivery as JUnit XML: the whole, its steps, and what every gate said. Something is red unless it was delivered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gates.model import Outcome
from gates.reports.junit import Case, Mark, Suite, case_of, junit_xml
from pipelines.outputs.wording import title
from pipelines.story import Gate, Step, StepState, Story

GROUP = "tidegate"
NOT_BEGUN = "the delivery ended before it began"
MARKS: Mapping[StepState, tuple[Mark, str]] = {
    StepState.DONE: (Mark.PASSED, ""),
    StepState.UNDONE: (Mark.SKIPPED, "was done, and was taken back with its region"),
    StepState.SKIPPED: (Mark.SKIPPED, NOT_BEGUN),
    StepState.WAITING: (Mark.SKIPPED, NOT_BEGUN),
    StepState.RUNNING: (Mark.ERROR, "was at work when nothing more was heard"),
}
"""How a step is shown, and why when it says nothing itself; one that failed is shown as the delivery's end is."""

ENDINGS: Mapping[str, Mark] = {"delivered": Mark.PASSED, "rolled-back": Mark.FAILED}
"""Of all other endings nobody knows whether the version is well."""


def delivery_junit(story: Story, delivery: str, now: datetime) -> str:
    """The document; `delivery` is the id, empty when nothing was opened."""
    seconds = story.elapsed_seconds(now)
    whole = _whole(story, delivery, seconds)
    steps = tuple(_of_step(step, story, now) for step in story.steps)
    suites = [Suite(name=title(story), cases=(whole, *steps), seconds=seconds, since=story.started)]
    gates = tuple(_of_gate(gate, story) for gate in story.gates)
    if gates:
        suites.append(Suite(name=f"{title(story)}: gates", cases=gates, seconds=seconds, since=story.started))
    return junit_xml(suites)


def _whole(story: Story, delivery: str, seconds: float) -> Case:
    outcome = story.outcome or "unknown"
    return Case(
        group=GROUP,
        name="delivery" if story.started else "start",
        mark=ENDINGS.get(outcome, Mark.ERROR),
        kind=outcome,
        reason=story.reason,
        seconds=seconds,
        output=f"delivery {delivery}" if delivery else "",
    )


def _of_step(step: Step, story: Story, now: datetime) -> Case:
    failed = (ENDINGS.get(story.outcome or "", Mark.ERROR), "")
    mark, reason = MARKS.get(step.state, failed)
    return Case(
        group=f"{GROUP}.{step.region}" if step.region else GROUP,
        name=step.id,
        mark=mark,
        kind=str(step.state),
        reason=reason or step.message,
        seconds=step.seconds(now),
        output=step.message,
    )


def _of_gate(gate: Gate, story: Story) -> Case:
    case = case_of(gate.latest, group=f"{GROUP}.{gate.step}")
    # Another gate, or whoever ended the delivery, was faster: that case is red, and this one says nothing.
    if gate.latest.outcome is Outcome.RUNNING and story.outcome is not None:
        return case.model_copy(update={"mark": Mark.SKIPPED, "kind": "", "reason": f"undecided: {gate.latest.reason}"})
    return case
