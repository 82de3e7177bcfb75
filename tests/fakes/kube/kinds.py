"""The kinds a cluster serves: what discovery says about each (`APIResource`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollouts.kube import resources
from rollouts.kube.model import Resource

_BUILT_IN = ("", "apps", "autoscaling", "batch", "policy")
"""Groups of the API server itself whose name has no dot; its others end in `.k8s.io`."""

_WITHOUT_STATUS = frozenset(
    {
        *("podtemplates", "endpoints", "events", "configmaps", "secrets", "serviceaccounts", "limitranges"),
        *("leases", "endpointslices", "networkpolicies", "priorityclasses", "storageclasses"),
        *("roles", "rolebindings", "clusterroles", "clusterrolebindings"),
        *("analysisruns", "analysistemplates", "clusteranalysistemplates", "triggerauthentications"),
        *("workflows", "workflowtemplates", "referencegrants"),
    }
)
"""Kinds without a `/status`: a status in such an object is a field like any other. AnalysisRuns are among them
(argo-rollouts, manifests/crds/analysis-run-crd.yaml has no `subresources`)."""


@dataclass(frozen=True)
class Kind:
    """One served kind."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    status: bool = True
    """Whether `/status` is served."""
    custom: bool = False
    """Whether a CustomResourceDefinition brings it: such a kind takes no update without a version."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As messages and CustomResourceDefinitions name it: `rollouts.argoproj.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.plural


def kind_of(resource: Resource) -> Kind:
    """What a cluster serves for a resource that tidegate asks about."""
    group = resource.group
    return Kind(
        group,
        resource.version,
        resource.plural,
        resource.kind,
        namespaced=resource.namespaced,
        status=resource.plural not in _WITHOUT_STATUS,
        custom=not (group in _BUILT_IN or (group.endswith(".k8s.io") and not group.startswith("gateway."))),
    )


def _served() -> Iterable[Kind]:
    yield from (kind_of(known) for known in resources.KNOWN if known is not resources.ACCESS_REVIEWS)
    yield Kind("apps", "v1", "statefulsets", "StatefulSet")
    yield Kind("apps", "v1", "daemonsets", "DaemonSet")


KINDS = tuple(_served())
"""What a cluster has with everything installed that tidegate may meet."""
