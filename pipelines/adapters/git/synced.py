"""What Argo CD and Flux say of themselves, read in the cluster that they run in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from pipelines.repository import Applied
from pipelines.spec.git import ArgoCdSpec, FluxSpec, filled
from rollouts.kube.client import KubeClient
from rollouts.kube.resources import APPLICATIONS, KUSTOMIZATIONS
from tidegate.core.model import Json

ClusterOf = Callable[[str], AbstractAsyncContextManager[KubeClient]]
"""Opens the cluster in which the tool of a region runs."""


class ToolInCluster:
    """A `SyncSource`."""

    def __init__(self, tool: ArgoCdSpec | FluxSpec, cluster_of: ClusterOf) -> None:
        """Asks nobody yet."""
        self._tool, self._cluster_of = tool, cluster_of

    async def applied(self, region: str) -> Applied:
        tool = self._tool
        is_argo = isinstance(tool, ArgoCdSpec)
        name = filled(tool.application if isinstance(tool, ArgoCdSpec) else tool.kustomization, {"region": region})
        async with self._cluster_of(region) as cluster:
            resource = APPLICATIONS if is_argo else KUSTOMIZATIONS
            found = await cluster.get(resource, name, namespace=tool.namespace)
        return said_by_argo_cd(name, found) if is_argo else said_by_flux(name, found)


def said_by_argo_cd(name: str, found: Json) -> Applied:
    """Of an Application: with which commit it has compared the cluster, and whether they agree."""
    status = found.get("status") or {}
    sync, operation = status.get("sync") or {}, status.get("operationState") or {}
    revisions = [sync.get("revision"), *(sync.get("revisions") or ())]
    failed = operation.get("phase") in ("Failed", "Error")
    words = [str(sync.get("status") or "it has not compared anything yet")]
    words += [" ".join(str(operation.get("message", "")).split())] if failed else []
    words += [each.get("message", "") for each in status.get("conditions") or () if "Error" in each.get("type", "")]
    return Applied(
        who=f"Argo CD application {name}",
        revisions=tuple(filter(None, revisions)),
        in_sync=sync.get("status") == "Synced",
        words="; ".join(filter(None, words)),
    )


def said_by_flux(name: str, found: Json) -> Applied:
    """Of a Kustomization: the commit behind `BRANCH@sha1:`, and whether it is ready."""
    status = found.get("status") or {}
    last = str(status.get("lastAppliedRevision") or "").rpartition(":")[2].rpartition("/")[2]
    ready: Json = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    return Applied(
        who=f"Flux kustomization {name}",
        revisions=(last,) if last else (),
        in_sync=ready.get("status") == "True",
        words=" ".join(str(ready.get("message") or "it has not applied anything yet").split()),
    )
