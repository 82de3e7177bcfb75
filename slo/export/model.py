"""What an export is made of, and what comes out."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from slo.export.wording import MARK
from slo.kubernetes.conventions import DELIVERY
from slo.kubernetes.manifest import object_name
from slo.model import KubernetesNames, Labels, Slo
from slo.spec import CostSpec, CountedBy, SloSpec
from tidegate.core.model import Value


class Cluster(Value):
    """Where the objects will live."""

    prometheus: str = "http://prometheus-operated.monitoring.svc:9090"
    """As Argo Rollouts reaches it from its own namespace."""
    namespace: str = ""
    """Of every object; whoever applies them says it when empty."""
    labels: Labels = Field(default_factory=dict)
    """Of every object, beside our own: rule and monitor selectors ask for them."""


class Wanted(Value):
    """A delivery's promises, and how the export should look."""

    delivery: str
    promises: tuple[SloSpec, ...] = Field(min_length=1)
    counted_by: CountedBy
    cost: CostSpec | None = None
    stage: timedelta
    """How long a canary is on trial."""
    scrape_interval: timedelta
    """Of the engines."""
    cluster: Cluster = Cluster()

    def names(self, suffix: str, slo: Slo | None = None) -> KubernetesNames:
        """Name, namespace and labels of an object of the delivery, or of one of its SLOs.

        A dot joins the names of both, which have none: with a dash, `chat-eu` and `ttft` would be `chat` and `eu-ttft`.
        """
        return KubernetesNames(
            name=object_name(f"{self.delivery}.{slo.name}" if slo else self.delivery, suffix),
            namespace=self.cluster.namespace,
            labels={DELIVERY: self.delivery} | dict(self.cluster.labels),
        )


class Exported(Value):
    """One file."""

    name: str
    """Its path below the folder of the export."""
    text: str
    holds: str
    """What is in it, in a few words."""
    mark: str = MARK
    """Stands in every version of the file that an export has written."""
    left_out: tuple[str, ...] = ()
    """What could not be in it, each with the reason."""
