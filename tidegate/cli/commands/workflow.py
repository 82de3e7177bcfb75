"""`tidegate workflow render`, `submit` and `watch`: a delivery as an Argo Workflow."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from pipelines.workflow.model import WorkflowInput
from pipelines.workflow.render import blueprint_of, rendered
from pipelines.workflow.runs import WorkflowState, progress_lines, workflow, workflow_state
from rollouts.adapters.kube.client import KubeClient, connect
from rollouts.errors import NotFound
from rollouts.kube.model import WatchEventType
from rollouts.kube.resources import WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.app.plan import require_files_for_pods
from tidegate.app.wiring.specs import read_delivery
from tidegate.cli.output import OutputForm, data_line, print_data, print_objects
from tidegate.core.clock import SystemClock
from tidegate.core.errors import OutsideError, UsageError


def render_workflow(spec_path: Path, *, output: OutputForm) -> int:
    """Print the objects; talks to nobody."""
    objects = rendered(workflow_input(spec_path))
    print_objects(objects, output)
    return 0


def workflow_input(spec_path: Path) -> WorkflowInput:
    """What the workflow of that spec is made of.

    Raises:
        SpecError: when the spec is wrong.
        UsageError: it describes no workflow.
    """
    return blueprint_of(read_delivery(spec_path), spec_path)


_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True)
class SubmitOptions:
    """As the options say it."""

    version: str
    delivery: str
    apply: bool
    context: str | None
    state: Path
    tracking_uri: str | None
    """The registry as it is reached from here; nobody is asked when it is not known."""


def submit_workflow(spec_path: Path, asked: SubmitOptions, *, output: OutputForm) -> int:
    """Create the workflow; print its name."""
    if not _VERSION.fullmatch(asked.version):
        raise UsageError(f"--version: found {asked.version!r}; expected the number of a model version")
    blueprint = workflow_input(spec_path)
    if asked.tracking_uri:
        require_files_for_pods(blueprint.spec, asked.version, asked.state, asked.tracking_uri)
    name = asyncio.run(_submit(blueprint, asked))
    if output.is_data:
        print_data({"workflow": name, "namespace": blueprint.namespace}, output)
    else:
        print(name)
    return 0


async def _submit(blueprint: WorkflowInput, asked: SubmitOptions) -> str:
    client = connect(asked.context, clock=SystemClock(), namespace=blueprint.namespace)
    try:
        if asked.apply:
            for each in rendered(blueprint):
                await client.apply(each)
        else:
            await client.get(WORKFLOW_TEMPLATES, blueprint.name)
        wanted = workflow(blueprint.name, blueprint.namespace, version=asked.version, delivery=asked.delivery)
        created = await client.create(WORKFLOWS, wanted)
    except NotFound as error:
        raise UsageError(
            f"there is no WorkflowTemplate {blueprint.name} in the namespace {blueprint.namespace}",
            hint="--apply brings it there",
        ) from error
    finally:
        await client.close()
    return str(created["metadata"]["name"])


def watch_workflow(name: str, spec_path: Path, context: str | None, *, output: OutputForm) -> int:
    """Tell what changes; returns the exit code of the delivery."""
    return asyncio.run(_watch(name, workflow_input(spec_path).namespace, context, output=output))


async def _watch(name: str, namespace: str, context: str | None, *, output: OutputForm) -> int:
    client = connect(context, clock=SystemClock(), namespace=namespace)
    try:
        return await _follow(client, name, output=output)
    finally:
        await client.close()


async def _follow(client: KubeClient, name: str, *, output: OutputForm) -> int:
    last: WorkflowState | None = None
    async with aclosing(client.watch(WORKFLOWS, fields=f"metadata.name={name}")) as changes:
        async for change in changes:
            if change.kind is WatchEventType.DELETED:
                raise OutsideError(f"workflow {name} was deleted", hint="its delivery's ledger says how far it came")
            if change.kind is WatchEventType.SYNCED and last is None:
                raise UsageError(f"there is no workflow {name} here")
            if change.kind not in (WatchEventType.ADDED, WatchEventType.MODIFIED):
                continue
            now = workflow_state(change.object)
            _tell(last, now, output=output)
            last = now
            if now.over:
                return int(now.exit_code)
    raise OutsideError(f"lost the watch on workflow {name}")


def _tell(last: WorkflowState | None, now: WorkflowState, *, output: OutputForm) -> None:
    if not output.is_data:
        for line in progress_lines(last, now):
            print(line, flush=True)
    elif now != last:
        print(data_line(now.model_dump(mode="json"), output), flush=True)
