"""The nouns of the Kubernetes API: resources, requests, what a watch tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote

from tidegate.core.model import Json, Value

Body = Json | list[Any]
"""What a request carries; a JSON patch is a list."""

EVERYWHERE = ""
"""As a namespace: all of them. Only reading can be asked of all."""

NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
"""A label that the API server itself puts on every namespace."""

MANAGER = "tidegate"
"""Our field manager: server-side apply refuses what another manager owns, and takes back what we no longer say."""

STRICT = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
"""Without it the API server drops a field that it does not know and says so to nobody (argo-rollouts#4569)."""


class Resource(Value):
    """One kind of object, as the API server names it in URLs."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    """As in the URL and in RBAC rules, such as `rollouts`."""
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As manifests say it, such as `argoproj.io/v1alpha1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = EVERYWHERE, name: str = "", subresource: str = "") -> str:
        """Where the collection is, or one object of it."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = f"/namespaces/{quote(namespace, safe='')}" if self.namespaced and namespace else ""
        # What is below `proxy` is a path.
        parts = (quote(name, safe=":"), quote(subresource, safe=":/"))
        return f"{root}{within}/{self.plural}{''.join(f'/{part}' for part in parts if part)}"


class PatchKind(StrEnum):
    """How a patch changes an object; the value is its content type."""

    MERGE = "application/merge-patch+json"
    """RFC 7396: what stands in it is set, null removes, lists are replaced whole."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply: the fields that tidegate wants to own. JSON is YAML too."""


@dataclass(frozen=True)
class Request:
    """One request to the API server, before it is sent."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    resource: Resource
    name: str = ""
    """Empty for the whole collection."""
    namespace: str | None = None
    """None for the namespace that the body names, else that of the one who sends it; `EVERYWHERE` for all."""
    subresource: str = ""
    """Such as `status` or `scale`; or `proxy/PATH` of a pod, which its own server answers."""
    patch: PatchKind | None = None
    """For PATCH only."""
    body: Body | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Besides those of every request; the API server passes them on to a pod."""


class ObjectList(Value):
    """A whole collection at one resource version."""

    items: tuple[Json, ...]
    """Each with its `apiVersion` and `kind`, which the API server leaves out in lists."""
    resource_version: str
    """The moment."""


class AccessReview(Value):
    """An access review: whether the caller may do this."""

    verb: str
    """Such as `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`."""
    resource: Resource
    name: str = ""
    """One object; empty for any."""
    subresource: str = ""
    namespace: str | None = None
    """None for the namespace of the one who asks; `EVERYWHERE` for all."""

    def __str__(self) -> str:
        """As `kubectl auth can-i` takes it, such as `patch rollouts/status support-llm`."""
        plural = self.resource.plural
        kind = f"{plural}/{self.subresource}" if self.subresource else plural
        return " ".join(part for part in (self.verb, kind, self.name) if part)
