"""The nouns of the Kubernetes API: resources, requests; the kinds that tidegate asks about, and what a manifest is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import quote

from rollouts.errors import NotPossible
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


def _core(plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(group="", version="v1", plural=plural, kind=kind, namespaced=namespaced)


def _in(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced)


ARGO = "argoproj.io"
ROLLOUTS = _in(ARGO, "v1alpha1", "rollouts", "Rollout")
ANALYSIS_TEMPLATES = _in(ARGO, "v1alpha1", "analysistemplates", "AnalysisTemplate")


WORKFLOWS = _in(ARGO, "v1alpha1", "workflows", "Workflow")
WORKFLOW_TEMPLATES = _in(ARGO, "v1alpha1", "workflowtemplates", "WorkflowTemplate")

PODS = _core("pods", "Pod")
SERVICES = _core("services", "Service")
CONFIG_MAPS = _core("configmaps", "ConfigMap")
SECRETS = _core("secrets", "Secret")
SERVICE_ACCOUNTS = _core("serviceaccounts", "ServiceAccount")
EVENTS = _core("events", "Event")
NODES = _core("nodes", "Node", namespaced=False)
NAMESPACES = _core("namespaces", "Namespace", namespaced=False)

REPLICA_SETS = _in("apps", "v1", "replicasets", "ReplicaSet")
DEPLOYMENTS = _in("apps", "v1", "deployments", "Deployment")
LEADER_WORKER_SETS = _in("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
LLM_INFERENCE_SERVICES = _in("serving.kserve.io", "v1alpha1", "llminferenceservices", "LLMInferenceService")
LEASES = _in("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICES = _in("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POD_DISRUPTION_BUDGETS = _in("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = _in("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
PRIORITY_CLASSES = _in("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

RBAC = "rbac.authorization.k8s.io"
ROLES = _in(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = _in(RBAC, "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES = _in(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _in(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)

CUSTOM_RESOURCE_DEFINITIONS = _in(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
ADMISSION = "admissionregistration.k8s.io"
ADMISSION_POLICIES = _in(ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False)
ADMISSION_BINDINGS = _in(
    ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
ACCESS_REVIEWS = _in(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

HTTP_ROUTES = _in("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
INFERENCE_POOLS = _in("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
VIRTUAL_SERVICES = _in("networking.istio.io", "v1", "virtualservices", "VirtualService")
SCALED_OBJECTS = _in("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
GATEWAYS = _in("gateway.networking.k8s.io", "v1", "gateways", "Gateway")
POD_MONITORS = _in("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
NODE_POOLS = _in("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)

WORKLOADS = {each.kind: each for each in (DEPLOYMENTS, LEADER_WORKER_SETS, LLM_INFERENCE_SERVICES)}
"""What runs engines of others behind a backend of a route, by its kind."""

RESOURCES: tuple[Resource, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Resource))
"""Every resource of this module."""

_BY_KIND = {(resource.group, resource.kind): resource for resource in RESOURCES}


def resource_of(manifest: Json) -> Resource:
    """What an object is, by its `apiVersion` and `kind`; the version is the object's own.

    Raises:
        NotPossible: when it is of no kind that tidegate knows.
    """
    group, _, version = str(manifest.get("apiVersion", "")).rpartition("/")
    known = _BY_KIND.get((group, str(manifest.get("kind", ""))))
    if known is None:
        said = f"{manifest.get('kind') or 'an object without kind'} of {manifest.get('apiVersion') or 'no apiVersion'}"
        raise NotPossible(f"tidegate does not know {said}", hint=f"it knows {', '.join(r.kind for r in RESOURCES)}")
    return known if known.version == version else known.model_copy(update={"version": version})
