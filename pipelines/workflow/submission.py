"""A run of a WorkflowTemplate, as `argo submit --from workflowtemplate/NAME` would create it. Pure."""

from __future__ import annotations

from pipelines.workflow import conventions as names
from rollouts.kube.model import Json
from rollouts.kube.resources import WORKFLOWS
from rollouts.manifests.conventions import DELIVERY, MANAGED_BY


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
