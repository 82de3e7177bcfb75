"""A run of a WorkflowTemplate: the object that submits it, and whether it is over."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipelines.workflow import model as names
from pipelines.workflow.model import WorkflowInput
from rollouts.errors import NotFound
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import WORKFLOW_TEMPLATES, WORKFLOWS
from tidegate.core.errors import UsageError
from tidegate.core.model import Json
from tidegate.core.names import DELIVERY, MANAGED_BY


def workflow(template: str, namespace: str, *, version: str, delivery: str = "") -> Json:
    """The object to create; the server adds a few letters to its name.

    Args:
        template: the WorkflowTemplate's name, which is the delivery's.
        namespace: the template's.
        version: number of the model version.
        delivery: one to be carried on, whose workflow was lost; empty for a new one.
    """
    arguments = {names.VERSION: version, names.DELIVERY: delivery}
    return {
        "apiVersion": WORKFLOWS.api_version,
        "kind": WORKFLOWS.kind,
        "metadata": {
            "generateName": f"{template}-{version}-",
            "namespace": namespace,
            "labels": {
                **MANAGED_BY,
                DELIVERY: template,
                # Where the argo command and its server look for a template's workflows.
                "workflows.argoproj.io/workflow-template": template,
            },
        },
        "spec": {
            "workflowTemplateRef": {"name": template},
            "arguments": {"parameters": [{"name": name, "value": value} for name, value in arguments.items() if value]},
        },
    }


OVER = frozenset({"Succeeded", "Failed", "Error"})


def is_over(workflow: Json) -> bool:
    """Whether its exit handler has ended too; not for one that its controller has not seen yet."""
    return (workflow.get("status") or {}).get("phase") in OVER


_VERSION = re.compile(r"[1-9][0-9]*")


async def submit(
    cluster: KubeClient, blueprint: WorkflowInput, version: str, delivery: str = "", objects: Sequence[Json] = ()
) -> str:
    """Create a workflow, and return its name.

    Args:
        cluster: its namespace is the workflow's.
        blueprint: what the template is made of.
        version: number of the model version.
        delivery: one to be carried on, whose workflow was lost; empty for a new one.
        objects: to apply first; without any the template has to be there.

    Raises:
        UsageError: there is no template.
    """
    for each in objects:
        await cluster.apply(each)
    if not objects:
        try:
            await cluster.get(WORKFLOW_TEMPLATES, blueprint.name)
        except NotFound as error:
            raise UsageError(
                f"there is no WorkflowTemplate {blueprint.name} in the namespace {blueprint.namespace}",
                hint="--apply brings it there",
            ) from error
    wanted = workflow(blueprint.name, blueprint.namespace, version=version, delivery=delivery)
    return str((await cluster.create(WORKFLOWS, wanted))["metadata"]["name"])


def require_number(version: str) -> None:
    """Refuse what is no number of a model version.

    Raises:
        UsageError: it is none.
    """
    if not _VERSION.fullmatch(version):
        raise UsageError(f"--version: found {version!r}; expected the number of a model version")
