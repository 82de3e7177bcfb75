"""Deliveries as workflows of a cluster."""

from __future__ import annotations

from pipelines.workflow import conventions as names
from pipelines.workflow.seen import seen
from pipelines.workflow.submission import workflow
from registry.triggers.model import Entry
from rollouts.adapters.kube.client import KubeClient
from rollouts.errors import NotFound
from rollouts.kube.model import Json
from rollouts.kube.resources import WORKFLOW_TEMPLATES, WORKFLOWS
from rollouts.manifests.conventions import DELIVERY
from tidegate.core.errors import UsageError


class Workflows:
    """Submits the WorkflowTemplate that is in the cluster, as `tidegate workflow submit` does."""

    def __init__(self, client: KubeClient, template: str, namespace: str) -> None:
        self._client, self._template, self._namespace = client, template, namespace

    async def start(self, entry: Entry) -> str:
        try:
            await self._client.get(WORKFLOW_TEMPLATES, self._template)
        except NotFound as error:
            raise UsageError(
                f"there is no WorkflowTemplate {self._template} in the namespace {self._namespace}",
                hint="`tidegate workflow render` prints it",
            ) from error
        wanted = workflow(self._template, self._namespace, version=entry.wish.version)
        created = await self._client.create(WORKFLOWS, wanted)
        return f"workflow {created['metadata']['name']}"

    async def runs(self, entry: Entry) -> bool:
        # By version, not by name: this also finds one whose name was never written down, because a process died.
        listed = await self._client.list(WORKFLOWS, labels=f"{DELIVERY}={self._template}")
        return any(_version(each) == entry.wish.version and not seen(each).over for each in listed.items)


def _version(found: Json) -> str | None:
    parameters = found["spec"].get("arguments", {}).get("parameters", [])
    return next((each["value"] for each in parameters if each["name"] == names.VERSION), None)
