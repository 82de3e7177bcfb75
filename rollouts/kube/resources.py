"""The kinds of objects that tidegate asks about, and the way from a manifest to its resource."""

from __future__ import annotations

from rollouts.errors import NotPossible
from rollouts.kube.model import Resource
from tidegate.core.model import Json


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
RESOURCE_QUOTAS = _core("resourcequotas", "ResourceQuota")
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

GATEWAYS = _in("gateway.networking.k8s.io", "v1", "gateways", "Gateway")
HTTP_ROUTES = _in("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
INFERENCE_POOLS = _in("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
VIRTUAL_SERVICES = _in("networking.istio.io", "v1", "virtualservices", "VirtualService")
SCALED_OBJECTS = _in("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")
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
