"""What the doctor is asked, what it reads of a region, and what it says: queries, a snapshot, checks and findings.

A plan needs the queries, and none of the checks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

import promql_parser as promql

from rollouts.argo.model import controlled_by
from rollouts.kube.resources import PODS, REPLICA_SETS, ROLLOUTS, AccessReview, Resource
from rollouts.manifests.conventions import TrafficRouter, canary_service, stable_service
from rollouts.manifests.routers import ROUTERS, RouteKind
from rollouts.model import ForeignObject
from tidegate.core.metrics import without_raw_strings
from tidegate.core.model import Json, Value
from tidegate.core.units import duration

Ask = Callable[[str], Awaitable[tuple[float, ...]]]
"""Gives the samples of an instant query to a region's Prometheus; none when no series answers it.

Raises `PrometheusRefused` when it cannot be evaluated, else `PrometheusUnreachable` or `CredentialMissing`.
"""


class EvidenceQuery(Value):
    """A query that somebody decides on."""

    asked_by: str
    """Such as `gate errors` or `SLO availability`."""
    query: str
    """PromQL without any place left open."""


class QueryResult(Value):
    """What the region's Prometheus said."""

    question: EvidenceQuery
    samples: tuple[float, ...] = ()
    unknown: tuple[str, ...] = ()
    """Metrics in the query of which Prometheus has no series at all; looked up only when there are no samples."""
    refused: str = ""
    """Its own words when it cannot evaluate the query."""


def metrics_of(query: str) -> tuple[str, ...]:
    """The names of the metrics that a query reads, each once; none when it is no PromQL."""
    found: dict[str, None] = {}

    def see(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            labels = {matcher.name: matcher.value for matcher in node.matchers.matchers}
            found[node.name or labels.get("__name__", "")] = None
        return True

    try:
        promql.walk(promql.parse(without_raw_strings(query)), see)
    except ValueError:
        return ()
    return tuple(filter(None, found))


class ScrapeInterval(Value):
    """What is asked, and what the answer should be."""

    query: str
    """PromQL: seconds between two samples, the longest of all engines; NaN or nothing before there are two."""
    interval: timedelta
    """As the spec has it."""
    look: timedelta
    """Between two batches of evidence."""

    def seen(self, samples: Sequence[float]) -> timedelta | None:
        """The interval in an answer; None when there is no engine yet, or one that was scraped once."""
        known = [seconds for seconds in samples if math.isfinite(seconds) and seconds > 0]
        return timedelta(seconds=round(max(known), 1)) if known else None


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
    """What was read, each in one line."""
    cause: str
    remediation: str
    """What to do about it."""


class Unread(StrEnum):
    """Why there is no answer."""

    ABSENT = "absent"
    """The API server knows no such resource: its definition is not installed."""
    FORBIDDEN = "forbidden"
    """These credentials may not read it; what it would have shown is not known."""


class DiagnosisTarget(Value):
    """The region and the delivery to diagnose, with what the spec says of them."""

    region: str
    delivery: str
    """The delivery's name, which is that of its Rollout and of its route."""
    traffic: TrafficRouter
    """Who splits its users."""
    controller_namespace: str = "argo-rollouts"
    questions: tuple[EvidenceQuery, ...] = ()
    """What gates and SLOs ask Prometheus in this region."""
    scraping: ScrapeInterval | None = None
    """How often engines should be scraped."""
    rights: tuple[AccessReview, ...] = ()
    """What a delivery has to do here."""
    objects: tuple[Json, ...] = ()
    """What a delivery and its set-up bring here, as rendered."""

    @property
    def routes(self) -> RouteKind:
        """The kind of object that splits its users, for its two Services."""
        return ROUTERS[self.traffic](stable_service(self.delivery), canary_service(self.delivery))

    def rendered(self, kind: Resource) -> tuple[Json, ...]:
        """Those of the objects that are of that kind."""
        return tuple(each for each in self.objects if each["kind"] == kind.kind)


class Snapshot(Value):
    """One region at one moment: all that checks may read."""

    target: DiagnosisTarget
    namespace: str
    now: datetime
    """By the API server's clock, as all times in its objects."""
    objects: Mapping[Resource, tuple[Json, ...] | Unread] = {}
    """Of the region's namespace, or of the cluster where a kind has none."""
    controller_pods: tuple[Json, ...] | None = None
    """Of Argo Rollouts; None when they may not be listed."""
    controller_deployed: bool = False
    """Whether its namespace has a Deployment of it; else it runs elsewhere or nowhere."""
    controller_log: tuple[str, ...] = ()
    """The last lines of its log about an error and about this Rollout or a plugin."""
    denied: tuple[AccessReview, ...] = ()
    """The rights of the target that these credentials lack."""
    foreign_objects: tuple[ForeignObject, ...] = ()
    """Objects of others where the delivery's would be, as far as they may be read."""
    answers: tuple[QueryResult, ...] = ()
    """To the target's questions."""
    scraped_every: timedelta | None = None
    """How often engines are scraped; None when Prometheus has not two samples of one."""
    away: tuple[str, ...] = ()
    """Why the region's Prometheus does not answer."""
    credential: tuple[str, ...] = ()
    """What is wrong with the credential for it: ours, then the server's own words, without any secret."""
    skew: timedelta | None = None
    """How far the API server's clock is ahead of ours; None when it does not say."""

    def all(self, resource: Resource) -> tuple[Json, ...]:
        """Every object of that kind that could be read."""
        found = self.objects.get(resource, ())
        return () if isinstance(found, Unread) else found

    def unread(self, resource: Resource) -> Unread | None:
        """Why objects of that kind could not be read."""
        found = self.objects.get(resource)
        return found if isinstance(found, Unread) else None

    def named(self, resource: Resource, name: str) -> Json | None:
        """One object of that kind."""
        return next((item for item in self.all(resource) if item["metadata"]["name"] == name), None)

    def since(self, moment: datetime) -> str:
        """How long ago that was."""
        return duration((self.now - moment).total_seconds())

    @property
    def rollout(self) -> Json:
        """The delivery's own Rollout; empty before its first delivery."""
        return self.named(ROLLOUTS, self.target.delivery) or {}

    @property
    def route(self) -> Json:
        """Of its users; empty where there is none."""
        return self.named(self.target.routes.resource, self.target.delivery) or {}

    @property
    def replica_sets(self) -> list[Json]:
        """Of that Rollout."""
        return controlled_by(self.rollout, self.all(REPLICA_SETS)) if self.rollout else []

    @property
    def pods(self) -> list[Json]:
        """Of these ReplicaSets."""
        return [pod for owner in self.replica_sets for pod in controlled_by(owner, self.all(PODS))]

    @property
    def is_empty(self) -> bool:
        """Whether the Rollout, and with it what scrapes engines, is not there yet, or is somebody else's."""
        theirs = any((each.kind, each.name) == (ROLLOUTS.kind, self.target.delivery) for each in self.foreign_objects)
        return theirs or not self.rollout


Observation = tuple[str, ...]
"""What was found, in one sentence with the names of the objects; then what was read."""

Find = Callable[[Snapshot, Json], Iterator[Observation]]
"""Given the delivery's own Rollout too, which is empty before its first delivery."""


class Check(Value):
    """A known fault that a region may have, and how it is found."""

    severity: Severity
    code: str
    cause: str
    remediation: str
    find: Find

    def findings(self, snapshot: Snapshot) -> Iterator[Finding]:
        """All of this fault. The words of others are put into one line."""
        row = self.model_dump(exclude={"find"})
        for observed in self.find(snapshot, snapshot.rollout):
            what, *evidence = (" ".join(text.split()) for text in observed)
            yield Finding(**row, what=what, evidence=tuple(dict.fromkeys(evidence)))


def _check(severity: Severity, code: str, *, cause: str, remediation: str) -> Callable[[Find], Check]:
    return lambda find: Check(severity=severity, code=code, cause=cause, remediation=remediation, find=find)


error, warning, note = (partial(_check, severity) for severity in Severity)
"""Each makes a check of the function that it decorates."""
