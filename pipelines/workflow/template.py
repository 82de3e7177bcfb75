"""The WorkflowTemplate of a delivery: one DAG for the whole way, one for the way of a region."""

from __future__ import annotations

import re

from hera.workflows import DAG, Parameter, Task, WorkflowTemplate
from hera.workflows.models import (
    LocalObjectReference,
    Metadata,
    Mutex,
    PodGC,
    Synchronization,
    TTLStrategy,
    WorkflowMetadata,
)

from pipelines.model import Step
from pipelines.workflow import conventions as names
from pipelines.workflow.blueprint import Blueprint
from pipelines.workflow.containers import building, closure, opening, staging
from pipelines.workflow.deadlines import deadline
from pipelines.workflow.legible import in_our_order
from pipelines.workflow.pods import volumes, whose
from pipelines.workflow.turns import Turn, Wave, course, turns
from rollouts.kube.model import Json
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY


def workflow_template(blueprint: Blueprint) -> Json:
    """The whole object, as `argo submit --from workflowtemplate/NAME -p version=7` wants it."""
    settings, labels = blueprint.settings, {**MANAGED_BY, DELIVERY: blueprint.name}
    build = settings.build
    keep = int(settings.keep.total_seconds())
    template = WorkflowTemplate(
        name=blueprint.name,
        namespace=blueprint.namespace,
        labels=labels,
        entrypoint=names.DELIVER,
        on_exit=names.CLOSE,
        arguments=[
            Parameter(name=names.VERSION, description="Number of the model version."),
            Parameter(name=names.DELIVERY, value="", description="Carry on this one, whose workflow was lost."),
        ],
        templates=[
            _deliver(blueprint),
            _region(blueprint),
            *([building(blueprint, build)] if build else []),
            opening(blueprint),
            staging(blueprint),
            closure(blueprint),
        ],
        volumes=volumes(blueprint),
        service_account_name=names.account(blueprint.name),
        image_pull_secrets=[LocalObjectReference(name=name) for name in settings.pull_secrets] or None,
        security_context=whose(),
        synchronization=Synchronization(mutexes=[Mutex(name=mutex(blueprint.spec.model.name))]),
        pod_gc=PodGC(strategy="OnPodSuccess"),
        pod_metadata=Metadata(labels={**MANAGED_BY, names.STEPS_OF: blueprint.name}),
        workflow_metadata=WorkflowMetadata(labels=labels),
        ttl_strategy=TTLStrategy(seconds_after_completion=keep),
    )
    rendered: Json = template.to_dict()
    return in_our_order(rendered)


def mutex(model: str) -> str:
    """What one delivery of a model holds at a time; others wait in line."""
    return f"tidegate-{re.sub(r'[^a-z0-9]+', '-', model.lower()).strip('-')}"


def _deliver(blueprint: Blueprint) -> DAG:
    """One task after the other; in a wave, its regions side by side."""
    with DAG(name=names.DELIVER) as dag:
        before = Task(name=names.ENGINE, template=names.ENGINE) if blueprint.settings.build else None
        before = _after(before, Task(name=names.OPEN, template=names.OPEN))
        for each in course(blueprint.steps):
            before = _after(before, _wave(each) if isinstance(each, Wave) else _once(blueprint, each))
    return dag


def _once(blueprint: Blueprint, step: Step) -> Task:
    name = f"{step.stage}-{step.wave}" if step.wave else str(step.stage)
    return Task(
        name=name, template=names.STAGE, arguments=_arguments(step.id, names.RESULT, _seconds(blueprint, [step]))
    )


def _wave(wave: Wave) -> Task:
    return Task(
        name=f"wave-{wave.number}",
        template=names.REGION,
        arguments={names.REGION: "{{item}}", names.DELIVERY: names.RESULT},
        with_items=list(wave.regions),
    )


def _region(blueprint: Blueprint) -> DAG:
    """What every region does, one turn after the other; some turns are for some regions only."""
    everywhere = blueprint.spec.regions.names
    with DAG(name=names.REGION, inputs=[Parameter(name=name) for name in (names.REGION, names.DELIVERY)]) as dag:
        before = None
        for turn in turns(blueprint.steps):
            steps = [step for step in blueprint.steps if (step.stage, step.weight) == (turn.stage, turn.weight)]
            step_id, delivery = turn.step_id(names.own_value(names.REGION)), names.own_value(names.DELIVERY)
            task = Task(
                name=turn.name,
                template=names.STAGE,
                arguments=_arguments(step_id, delivery, _seconds(blueprint, steps)),
                when=None if turn.regions == everywhere else _is_one_of(turn),
            )
            before = _after(before, task)
    return dag


def _is_one_of(turn: Turn) -> str:
    # In quotes: `eu-west-1` would be a subtraction.
    return " || ".join(f"'{names.own_value(names.REGION)}' == '{region}'" for region in turn.regions)


def _arguments(step: str, delivery: str, seconds: int) -> dict[str, str]:
    return {names.STEP: step, names.DELIVERY: delivery, names.DEADLINE: str(seconds)}


def _seconds(blueprint: Blueprint, steps: list[Step]) -> int:
    """Of several regions' steps, the longest."""
    found = (deadline(blueprint.spec, blueprint.fleet, step, blueprint.steps) for step in steps)
    return int(max(found).total_seconds())


def _after(before: Task | None, task: Task) -> Task:
    """`task`, which waits for the one before it; one that was skipped is no obstacle."""
    if before is not None:
        task.dependencies = [before.name]
    return task
