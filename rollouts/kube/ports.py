"""One cluster as its users see it: the namespace of one region, through the Kubernetes API.

Every method raises the errors of `rollouts.errors`: `ApiError` and below for what the server said, `Unreachable` when
it did not answer. A `namespace` of None is the one that the cluster was opened with.
"""

from __future__ import annotations

from typing import Protocol

from rollouts.errors import NotFound
from rollouts.kube.model import AccessReview, Body, ObjectList, PatchKind, Request, Resource
from tidegate.core.model import Json


class ClusterReader(Protocol):
    """Reads; changes nothing. Retries by itself when the server is busy or away."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Json:
        """One object as it is now."""
        ...

    async def list(
        self, resource: Resource, *, labels: str = "", fields: str = "", namespace: str | None = None
    ) -> ObjectList:
        """All objects that match the selectors, at one moment."""
        ...

    async def allowed(self, question: AccessReview) -> bool:
        """Whether the API server would let us (SelfSubjectAccessReview)."""
        ...

    async def text(self, path: str) -> str:
        """The plain answer to a GET, such as a controller's metrics through the API's service proxy."""
        ...


async def find(cluster: ClusterReader, resource: Resource, name: str, *, namespace: str | None = None) -> Json | None:
    """One object as it is now; None when there is none, or no such kind."""
    try:
        return await cluster.get(resource, name, namespace=namespace)
    except NotFound:
        return None


class ClusterWriter(Protocol):
    """Changes objects. Retries by itself only when nothing can have been done."""

    async def create(self, resource: Resource, body: Json) -> Json:
        """Bring a new object; Conflict when its name is taken."""
        ...

    async def apply(self, body: Json, *, force: bool = False, dry_run: bool = False) -> Json:
        """Server-side apply as field manager `tidegate`, with unknown fields refused; `force` takes fields over."""
        ...

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        dry_run: bool = False,
        namespace: str | None = None,
    ) -> Json:
        """Change a part; with `metadata.resourceVersion` in a merge patch, Conflict when somebody was faster."""
        ...

    async def replace(self, resource: Resource, body: Json) -> Json:
        """Write the whole object (PUT); Conflict when somebody was faster."""
        ...

    async def delete(self, resource: Resource, name: str, *, namespace: str | None = None) -> None:
        """Ask for its end, dependents in the background; NotFound when it is gone already."""
        ...

    async def send(self, request: Request) -> Json:
        """One request as it is; everything above is built on it."""
        ...


class Cluster(ClusterReader, ClusterWriter, Protocol):
    """All of it, with the end that a connection has."""

    namespace: str
    """Where objects are that name none."""

    async def close(self) -> None:
        """Close every connection."""
        ...
