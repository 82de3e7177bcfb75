"""A delivery in the forms that CI systems show: JUnit XML, and Markdown for GitHub and GitLab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from junitparser import Error, Failure, Skipped, TestCase
from junitparser.junitparser import FinalResult

from gates.model import GateOutcome
from gates.reports.junit import case, case_of, junit_xml
from pipelines.events.state import DeliveryState, GateState, StepState, StepStatus
from pipelines.views.wording import at_the_end, facts, headline, key_numbers
from tidegate.core.text import table_cell
from tidegate.core.units import duration

GROUP = "tidegate"
NOT_BEGUN = "the delivery ended before it began"
Result = type[FinalResult] | None
RESULTS: Mapping[StepStatus, tuple[Result, str]] = {
    StepStatus.DONE: (None, ""),
    StepStatus.UNDONE: (Skipped, "was done, and was rolled back with its region"),
    StepStatus.SKIPPED: (Skipped, NOT_BEGUN),
    StepStatus.WAITING: (Skipped, NOT_BEGUN),
    StepStatus.RUNNING: (Error, "was at work when nothing more was heard"),
}
"""How a step is shown, and why when it says nothing itself; one that failed is shown as the delivery's end is."""

ENDINGS: Mapping[str, Result] = {"delivered": None, "rolled-back": Failure}
"""Of all other endings it is unknown whether the version is well."""


def delivery_junit(story: DeliveryState, delivery: str, now: datetime) -> str:
    """The document; `delivery` is the id, empty when nothing was opened."""
    seconds = story.elapsed_seconds(now)
    outcome = story.outcome or "unknown"
    whole = case(
        GROUP,
        "delivery" if story.started else "start",
        ENDINGS.get(outcome, Error),
        kind=outcome,
        reason=story.reason,
        seconds=seconds,
        output=f"delivery {delivery}" if delivery else "",
    )
    title = f"{story.model} {story.version}" if story.started else GROUP
    suites = {title: [whole, *(_of_step(step, story, now) for step in story.steps)]}
    if story.gates:
        suites[f"{title}: gates"] = [_of_gate(gate, story) for gate in story.gates]
    return junit_xml(suites, seconds=seconds, since=story.started)


def _of_step(step: StepState, story: DeliveryState, now: datetime) -> TestCase:
    failed = (ENDINGS.get(story.outcome or "", Error), "")
    result, reason = RESULTS.get(step.state, failed)
    return case(
        f"{GROUP}.{step.region}" if step.region else GROUP,
        step.id,
        result,
        kind=str(step.state),
        reason=reason or step.message,
        seconds=step.seconds(now),
        output=step.message,
    )


def _of_gate(gate: GateState, story: DeliveryState) -> TestCase:
    # Another gate, or the one who ended the delivery, was faster: that case is red, and this one says nothing.
    undecided = gate.latest.outcome is GateOutcome.RUNNING and story.outcome is not None
    skipped = f"undecided: {gate.latest.reason}" if undecided else ""
    return case_of(gate.latest, group=f"{GROUP}.{gate.step}", skipped=skipped)


GATES_SHOWN = 200
"""A page of CI holds a megabyte, and a delivery to many regions has thousands of verdicts. What says no comes first."""


def delivery_markdown(story: DeliveryState, delivery: str, now: datetime) -> str:
    """The whole summary, with a line end."""
    parts = [_head(story, delivery, now), _regions(story), _gates(story), _steps(story, now)]
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"


def _head(story: DeliveryState, delivery: str, now: datetime) -> Iterator[str]:
    yield f"### {table_cell(headline(story) if story.started else 'Nothing was begun')}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in facts(story, now).items():
        told = table_cell(value)
        yield f"| {name} | {f'**{told}**' if name == 'outcome' else told} |"
    if delivery:
        yield f"| delivery | `{delivery}` |"


def _regions(story: DeliveryState) -> Iterator[str]:
    if any(region.history for region in story.regions):
        yield "| region | users |"
        yield "|---|---|"
        for region in story.regions:
            yield f"| {table_cell(region.name)} | {table_cell(at_the_end(region, story)) or '-'} |"


def _gates(story: DeliveryState) -> Iterator[str]:
    if not story.gates:
        return
    worst_first = sorted(story.gates, key=lambda gate: gate.latest.outcome <= GateOutcome.RUNNING)
    yield f"<details><summary>{len(story.gates)} verdicts</summary>"
    yield "\n| gate | in | verdict | why |"
    yield "|---|---|---|---|"
    for gate in worst_first[:GATES_SHOWN]:
        outcome = gate.latest.outcome
        word = str(outcome) if outcome <= GateOutcome.RUNNING else f"**{outcome}**"
        why = "; ".join(part for part in (key_numbers(gate), gate.latest.reason) if part)
        yield f"| {table_cell(gate.name)} | {table_cell(gate.step)} | {word} | {table_cell(why)} |"
    if len(worst_first) > GATES_SHOWN:
        yield f"| and {len(worst_first) - GATES_SHOWN} more | | | |"
    yield "\n</details>"


def _steps(story: DeliveryState, now: datetime) -> Iterator[str]:
    begun = [step for step in story.steps if step.started]
    if not begun:
        return
    yield f"<details><summary>{len(begun)} of {len(story.steps)} steps</summary>"
    yield "\n| step | | took | |"
    yield "|---|---|---|---|"
    for step in begun:
        state = f"**{step.state}**" if step.state is StepStatus.FAILED else str(step.state)
        yield f"| {table_cell(step.id)} | {state} | {duration(step.seconds(now))} | {table_cell(step.message)} |"
    yield "\n</details>"
