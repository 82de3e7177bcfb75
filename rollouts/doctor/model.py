"""The snapshot of a region that checks read, and the findings that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from functools import wraps

from rollouts.doctor.network_policies import Caller
from rollouts.doctor.queries import QueryResult, ScrapeInterval
from rollouts.kube.model import AccessReview, Resource
from rollouts.kube.resources import POD_MONITORS, ROLLOUTS
from rollouts.manifests.ownership import is_adopted
from rollouts.model import ForeignObject
from tidegate.core.model import Json, Value


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """A delivery cannot go through, or is judged wrongly."""
    WARNING = "warning"
    """Deliveries work today but will fail under conditions that occur in practice."""
    NOTE = "note"
    """Worth knowing; nothing is wrong."""


class Finding(Value):
    """One fault of one region, with the evidence for it."""

    code: str
    """The same for the same cause, whatever it was seen on; docs/reference/doctor.md explains each."""
    severity: Severity
    what: str
    """One sentence, with the names of the objects."""
    evidence: tuple[str, ...]
    """What was read, as it was read."""
    cause: str
    remediation: str
    """What to do about it."""


class Check(Value):
    """A known fault that a region may have: what a finding of it says."""

    code: str
    severity: Severity
    cause: str
    remediation: str

    def found(self, what: str, *evidence: str) -> Finding:
        """The finding of this fault."""
        return Finding(**self.model_dump(), what=what, evidence=evidence)


class Unread(StrEnum):
    """Why there is no answer."""

    ABSENT = "absent"
    """The API server knows no such resource: its definition is not installed."""
    FORBIDDEN = "forbidden"
    """Anyone who asked may not read it; what it would have shown is not known."""


class Reading(Value):
    """All objects of one kind in the region's namespace, or in the cluster when they have none."""

    items: tuple[Json, ...] = ()
    unread: Unread | None = None


class Controller(Value):
    """The Argo Rollouts controller, as far as its namespace may be read."""

    namespace: str
    readable: bool = True
    """Whether its pods could be listed; else nothing is known of it, which is no finding."""
    deployments: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    lease: Json | None = None
    """The lock of its leader election; None when there is none or it may not be read."""
    config: Json | None = None
    """The ConfigMap `argo-rollouts-config`, read by the controller when it starts and never again."""
    config_unread: bool = False
    """Whether it may not be read; then nothing is known of it."""
    reconciles: float | None = None
    """How often it looked at this Rollout since it started; None when its metrics could not be read."""
    errors: float | None = None
    """How many of these looks ended in an error (`rollout_reconcile_error`)."""
    log: tuple[str, ...] = ()
    """The last lines of its log that speak of an error and of this Rollout or of a plugin."""

    @property
    def here(self) -> bool:
        """Whether it is, or should be, a pod of this namespace; else it runs elsewhere or nowhere."""
        return bool(self.pods or self.deployments)

    @property
    def version(self) -> tuple[int, int] | None:
        """Of its image; None when no tag tells. Tags of Argo Rollouts begin with v."""
        for pod in self.pods:
            for container in pod["spec"]["containers"]:
                found = re.search(r"argo-rollouts\S*:v?(\d+)\.(\d+)", str(container.get("image", "")))
                if found:
                    return int(found[1]), int(found[2])
        return None

    @property
    def words(self) -> tuple[str, ...]:
        """What it says of its failures with this Rollout; nothing when it has none."""
        looks = f", in {self.reconciles:.0f} looks" if self.reconciles else ""
        counted = (f"rollout_reconcile_error is {self.errors:.0f}{looks}",) if self.errors else ()
        return (*counted, *self.log)


class Gateway(Value):
    """One that the delivery's routes name, and who carries its traffic."""

    name: str
    namespace: str
    readable: bool = True
    """Whether pods could be listed anywhere that they may be."""
    proxies: tuple[Caller, ...] = ()
    """The pods that ask engines, without those in their node's own network."""


class AccessResult(Value):
    """The API server's answer about one right that tidegate needs."""

    question: AccessReview
    allowed: bool


class PrometheusTrouble(StrEnum):
    """What keeps Prometheus from answering."""

    AWAY = "away"
    CREDENTIAL_MISSING = "credential missing"
    CREDENTIAL_REFUSED = "credential refused"
    CERTIFICATE_UNTRUSTED = "certificate untrusted"


class PrometheusProblem(Value):
    """Why it could not be asked."""

    trouble: PrometheusTrouble
    told: str
    """In one line, without any secret."""
    its_words: str = ""
    """The server's own."""


class Snapshot(Value):
    """One region at one moment: all that checks may read."""

    region: str
    delivery: str
    """The delivery's name, which is that of its Rollout."""
    namespace: str
    now: datetime
    """By the API server's clock, as all times in its objects."""
    objects: Mapping[Resource, Reading] = {}
    controller: Controller
    gateways: tuple[Gateway, ...] = ()
    """Not looked for where network policies may not be read."""
    access: tuple[AccessResult, ...] = ()
    admission: tuple[Json, ...] = ()
    """Policies and bindings that hold tidegate to its own objects, as they would be rendered now."""
    workflows_config: Json | None = None
    """The ConfigMap of Argo Workflows' controller; None where there is none, where it may not be read, or where no
    workflow carries deliveries."""
    workflows_unread: bool = False
    """Whether it may not be read."""
    monitors: tuple[str, ...] = ()
    """PodMonitors that a delivery brings, by name."""
    foreign_objects: tuple[ForeignObject, ...] = ()
    """Objects of others where the delivery's would be, as far as they may be read."""
    answers: tuple[QueryResult, ...] = ()
    """To the queries of the delivery's gates and SLOs."""
    scraping: ScrapeInterval | None = None
    """How often engines should be scraped; None when nobody says."""
    scraped_every: timedelta | None = None
    """How often they are; None when Prometheus has not two samples of one."""
    prometheus_problem: PrometheusProblem | None = None
    """Why the region's Prometheus could not be asked; None when it could, or when none is named."""
    empty_tenant: str = ""
    """The tenant that is asked for and has no series at all."""
    guard: str = ""
    """The image that the region's guard should run from, by digest; empty where the spec asks for none."""
    skew: timedelta | None = None
    """How far the API server's clock is ahead of ours; None when it does not say."""
    last_delivery: datetime | None = None
    """When the registry last saw a delivery of this model begin; None when it never did, or was not asked."""

    def all(self, resource: Resource) -> tuple[Json, ...]:
        """Every object of that kind that could be read."""
        return self.objects.get(resource, Reading()).items

    def unread(self, resource: Resource) -> Unread | None:
        """Why objects of that kind could not be read."""
        return self.objects.get(resource, Reading()).unread

    def named(self, resource: Resource, name: str) -> Json | None:
        """One object of that kind."""
        return next((item for item in self.all(resource) if item["metadata"]["name"] == name), None)

    @property
    def rollout(self) -> Json | None:
        """The delivery's own Rollout; None before its first delivery."""
        return self.named(ROLLOUTS, self.delivery)

    @property
    def is_empty(self) -> bool:
        """Whether the Rollout is not there yet, or somebody else's."""
        theirs = any((each.kind, each.name) == (ROLLOUTS.kind, self.delivery) for each in self.foreign_objects)
        return theirs or self.rollout is None

    @property
    def is_unwatched(self) -> bool:
        """Whether it was adopted, and waits for the delivery that brings what scrapes its engines."""
        waits = self.unread(POD_MONITORS) is None and any(not self.named(POD_MONITORS, name) for name in self.monitors)
        return waits and self.rollout is not None and is_adopted(self.rollout)


Inspection = Callable[[Snapshot], Iterator[Finding]]
"""A function of the snapshot alone that yields the findings of one or more checks."""


def of_rollout(check: Callable[[Snapshot, Json], Iterator[Finding]]) -> Inspection:
    """An inspection of the delivery's Rollout; it yields nothing before there is one."""

    @wraps(check)
    def checked(snapshot: Snapshot) -> Iterator[Finding]:
        if snapshot.rollout is not None:
            yield from check(snapshot, snapshot.rollout)

    return checked
