"""The WorkflowTemplate of a delivery: one DAG for the whole delivery, one for the steps of a region. Pure."""

from __future__ import annotations

from itertools import groupby

from hera.workflows import DAG, Parameter, Task, WorkflowTemplate, models

from pipelines.model import PlanStep, StageName
from pipelines.spec.workflow import account_of
from pipelines.workflow import model as names
from pipelines.workflow.containers import building, closure, deadline, disks, opening, staging, whose
from pipelines.workflow.model import WorkflowInput
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY, object_name


def workflow_template(blueprint: WorkflowInput) -> Json:
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
        volumes=[each.volume for each in disks(blueprint)],
        service_account_name=account_of(blueprint.name),
        image_pull_secrets=[models.LocalObjectReference(name=name) for name in settings.pull_secrets] or None,
        security_context=whose(),
        synchronization=models.Synchronization(mutexes=[models.Mutex(name=mutex(blueprint.spec.model.name))]),
        pod_gc=models.PodGC(strategy="OnPodSuccess"),
        pod_metadata=models.Metadata(labels={**MANAGED_BY, names.STEPS_OF: blueprint.name}),
        workflow_metadata=models.WorkflowMetadata(labels=labels),
        ttl_strategy=models.TTLStrategy(seconds_after_completion=keep),
    )
    rendered: Json = template.to_dict()
    return rendered


def mutex(model: str) -> str:
    """What one delivery of a model holds at a time; others wait in line."""
    return object_name(f"tidegate-{model}")


def _deliver(blueprint: WorkflowInput) -> DAG:
    """One task after the other; in a wave, its regions side by side."""
    with DAG(name=names.DELIVER) as dag:
        before = Task(name=names.ENGINE, template=names.ENGINE) if blueprint.settings.build else None
        before = _after(before, Task(name=names.OPEN, template=names.OPEN))
        for (wave, regional), steps in groupby(blueprint.steps, key=lambda step: (step.wave, step.region is not None)):
            if regional:
                before = _after(before, _wave(wave, [step.region for step in steps if step.region]))
                continue
            for step in steps:
                before = _after(before, _once(blueprint, step))
    return dag


def _once(blueprint: WorkflowInput, step: PlanStep) -> Task:
    name = f"{step.stage}-{step.wave}" if step.wave else str(step.stage)
    return Task(
        name=name, template=names.STAGE, arguments=_arguments(step.id, names.RESULT, _seconds(blueprint, [step]))
    )


def _wave(number: int, regions: list[str]) -> Task:
    return Task(
        name=f"wave-{number}",
        template=names.REGION,
        arguments={names.REGION: "{{item}}", names.DELIVERY: names.RESULT},
        with_items=list(dict.fromkeys(regions)),
    )


def _region(blueprint: WorkflowInput) -> DAG:
    """The way of the region with the most steps; others have parts of it in the same order, and pass the rest by."""
    lanes: dict[str, list[tuple[StageName, int | None]]] = {}
    for step in blueprint.steps:
        if step.region:
            lanes.setdefault(step.region, []).append((step.stage, step.weight))
    longest = max(lanes.values(), key=len)
    for lane in lanes.values():
        assert [turn for turn in longest if turn in lane] == lane, "regions go in different orders"
    here, delivery = names.own_value(names.REGION), names.own_value(names.DELIVERY)
    with DAG(name=names.REGION, inputs=[Parameter(name=name) for name in (names.REGION, names.DELIVERY)]) as dag:
        before = None
        for stage, weight in longest:
            steps = [step for step in blueprint.steps if (step.stage, step.weight) == (stage, weight)]
            own = [name for name, lane in lanes.items() if (stage, weight) in lane]
            step_id = PlanStep(stage=stage, region=here, weight=weight).id
            task = Task(
                name=str(stage) if weight is None else f"{stage}-{weight}",
                template=names.STAGE,
                arguments=_arguments(step_id, delivery, _seconds(blueprint, steps)),
                # In quotes: `eu-west-1` would be a subtraction.
                when=" || ".join(f"'{here}' == '{region}'" for region in own) if len(own) < len(lanes) else None,
            )
            before = _after(before, task)
    return dag


def _arguments(step: str, delivery: str, seconds: int) -> dict[str, str]:
    return {names.STEP: step, names.DELIVERY: delivery, names.DEADLINE: str(seconds)}


def _seconds(blueprint: WorkflowInput, steps: list[PlanStep]) -> int:
    """Of several regions' steps, the longest."""
    found = (deadline(blueprint.spec, blueprint.fleet, step, blueprint.steps) for step in steps)
    return int(max(found).total_seconds())


def _after(before: Task | None, task: Task) -> Task:
    """`task`, which waits for the one before it; one that was skipped is no obstacle."""
    if before is not None:
        task.dependencies = [before.name]
    return task
