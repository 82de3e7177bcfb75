"""What a namespace has that serves a model today: facts, each as the objects of others say it; no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.core.model import Value


class EnvironmentName(Value):
    """A variable of a container; its value is not read."""

    name: str
    source: str
    """`a value`, or what gives it, such as `Secret hub-token`."""


class VolumeMount(Value):
    """A volume inside a container."""

    path: str
    kind: str
    """Of the volume, as the pod spec names it: `persistentVolumeClaim`, `emptyDir`, ..."""
    claim: str = ""
    """Of a persistentVolumeClaim."""
    within: str = ""
    """The `subPath` of the volume that is mounted."""
    size: str = ""
    """`sizeLimit` of an emptyDir."""


class ServingContainer(Value):
    """The container that answers users."""

    name: str
    image: str
    """As the pod template names it."""
    digest: str = ""
    """`sha256:...` of the image that runs, as a pod's status says; empty where none does."""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: tuple[EnvironmentName, ...] = ()
    cpu: str = ""
    """What it asks for, as Kubernetes writes quantities; empty where it does not say."""
    memory: str = ""
    accelerators: Mapping[str, int] = {}
    """By extended resource, such as `nvidia.com/gpu`."""
    port: int | None = None
    probes: tuple[str, ...] = ()
    """Such as `readiness GET /health`."""
    start_seconds: int | None = None
    """How long its startup probe allows."""
    user: int | None = None
    mounts: tuple[VolumeMount, ...] = ()


class PodFacts(Value):
    """The pod template."""

    engine: ServingContainer
    sidecars: tuple[str, ...] = ()
    """`NAME (IMAGE)` of every other container."""
    init_containers: tuple[str, ...] = ()
    grace_seconds: int | None = None
    pull_secrets: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    """Without those that a selector of any object found relies on."""
    annotations: tuple[str, ...] = ()
    """Their keys."""
    node_selector: Mapping[str, str] = {}
    tolerates: tuple[str, ...] = ()
    node_labels: Mapping[str, str] = {}
    """Of a node that one of its pods runs on."""
    service_account: str = ""
    runtime_class: str = ""


class StrategyFacts(Value):
    """How a version becomes stable today."""

    kind: str
    """`canary` or `blueGreen`."""
    weights: tuple[int, ...] = ()
    routers: tuple[str, ...] = ()
    """Traffic routers that a Rollout names."""
    analyses: tuple[str, ...] = ()
    """AnalysisTemplates that it names."""
    min_canary: int | None = None
    warm_seconds: int | None = None
    """`scaleDownDelaySeconds`."""
    dynamic_stable: bool = False


class ServiceFacts(Value):
    """A Service that selects the pods."""

    name: str
    type: str
    ports: tuple[int, ...] = ()


class Router(StrEnum):
    """What leads users to the Services."""

    HTTP_ROUTE = "HTTPRoute"
    VIRTUAL_SERVICE = "VirtualService"
    INGRESS = "Ingress"
    NONE = "nothing"


class TrafficFacts(Value):
    """How users reach the pods."""

    services: tuple[ServiceFacts, ...] = ()
    router: Router = Router.NONE
    route: str = ""
    """Its name."""
    gateway: str = ""
    gateway_namespace: str = ""
    """Empty for the route's own."""
    listener: str = ""
    other_listeners: tuple[str, ...] = ()
    """Of the same gateway, where it may be read, and where the route names one."""
    hosts: tuple[str, ...] = ()
    entry: str = ""
    """SCHEME://HOST[:PORT] under which users ask; empty where nothing says."""
    timeout: str = ""
    """For a whole answer, as the route says it."""


class ScalerFacts(Value):
    """Who changes the number of pods."""

    kind: str
    name: str
    min_replicas: int
    max_replicas: int
    signals: tuple[str, ...] = ()


class MonitorFacts(Value):
    """A PodMonitor or ServiceMonitor that scrapes the pods."""

    kind: str
    name: str
    labels: Mapping[str, str] = {}
    interval: str = ""


class PrometheusPlace(Value):
    """An address of Prometheus, and the object that names it."""

    address: str
    """Without a name and password."""
    source: str
    asked_by: str
    """`rollouts` or `keda`."""


class ServingSurvey(Value):
    """One Rollout in one cluster, with everything around it that tidegate would replace."""

    context: str
    namespace: str
    name: str
    owner: str
    """What the object says of who manages it."""
    replicas: int
    unavailable: int | None = None
    """`maxUnavailable` of its PodDisruptionBudget."""
    pod: PodFacts
    strategy: StrategyFacts
    traffic: TrafficFacts = TrafficFacts()
    scaler: ScalerFacts | None = None
    monitors: tuple[MonitorFacts, ...] = ()
    prometheus: tuple[PrometheusPlace, ...] = ()
    taken: frozenset[str] = frozenset()
    """`KIND NAME` of objects in the namespace, of kinds that a delivery brings."""
    unread: tuple[str, ...] = ()
    """Kinds that could not be read, and why."""

    @property
    def subject(self) -> str:
        """Kind and name."""
        return f"Rollout {self.name}"
