"""A snapshot of a region's objects, and what can be read from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from rollouts.argo.model import Rollout, controlled_by, hash_of, parse_time, pause_points
from rollouts.argo.state import (
    RolloutHealth,
    health_of,
    is_abort_confirmed,
    pending_reaction,
    waiting_for_controller,
)
from rollouts.cluster.model import (
    RegionConfig,
    RegionView,
    Revision,
    annotation,
    revision_of_replica_set,
    version_labels,
)
from rollouts.cluster.reference import TEMPLATE, RegionNotes, template_digest, template_writers, version_in
from rollouts.kube.model import MANAGER
from rollouts.kube.objects import owns_field
from rollouts.manifests.conventions import PREVIOUS
from rollouts.manifests.routers import RouteKind
from rollouts.model import ForeignChange
from tidegate.core.model import Json
from tidegate.core.names import VERSION

REACTS_WITHIN = timedelta(seconds=10)
"""A controller that is well takes a second or two."""


@dataclass(frozen=True)
class RegionSnapshot(RegionView):
    """A region at one moment. What is not there is None."""

    at: datetime
    place: RegionConfig
    rollout: Json | None = None
    """With the pod template of its workload, where it has none of its own."""
    replica_sets: tuple[Json, ...] = ()
    route: Json | None = None
    pods: tuple[Json, ...] = ()
    """Of the delivery; read only while some engine is missing."""
    notes: RegionNotes = field(default_factory=RegionNotes)
    """What the Lease remembers of a Rollout of others."""
    workload: Json | None = None
    """The Deployment of its `workloadRef`."""

    @property
    def routes(self) -> RouteKind:
        """The kind of the route."""
        return self.place.routes

    def version_of(self, template: Json) -> tuple[str, str, int]:
        """Version, digest and attempt of a pod template."""
        theirs = self.place.theirs
        return version_in(template, theirs, self.notes) if theirs else version_labels(template)

    @cached_property
    def argo(self) -> Rollout:
        """The Rollout as Argo Rollouts reads it; empty when there is none."""
        return Rollout(self.rollout or {"metadata": {}})

    @property
    def movers(self) -> tuple[Json | None, Json | None]:
        """The Rollout and its route."""
        return self.rollout, self.route

    @cached_property
    def revisions(self) -> tuple[Revision, ...]:
        """All that the Rollout remembers, the latest first."""
        own = controlled_by(self.rollout, self.replica_sets) if self.rollout else []
        found = (revision_of_replica_set(each, self.version_of) for each in own)
        return tuple(sorted(found, key=lambda each: each.number, reverse=True))

    @property
    def observed(self) -> bool:
        """Whether the controller has seen the Rollout as it is now."""
        return self.rollout is not None and not waiting_for_controller(self.rollout)

    @property
    def stable(self) -> Revision | None:
        """The version that was last promoted in full."""
        return self._of_hash(self.argo.stable_hash)

    @property
    def serving(self) -> str:
        """Its version; empty where there is none."""
        return self.stable.version if self.stable else ""

    @property
    def trial(self) -> Revision | None:
        """The version that is on its way to replace the stable one, rolled back or not."""
        return self._of_hash(self.argo.pod_hash) if self.argo.stable_hash and self.argo.in_progress else None

    @property
    def template(self) -> Json:
        """The pod template that is asked for."""
        return self.argo.spec.get("template") or {}

    @property
    def asked(self) -> tuple[str, str, int]:
        """Version, digest and attempt that the Rollout's template asks for, seen by the controller or not."""
        return self.version_of(self.template)

    @property
    def foreign_change(self) -> ForeignChange | None:
        """What somebody else than tidegate asks for; None when the template's version is our own operation.

        None too until the controller acted on it, or had the time: an abort that is sent before is lost, since a
        controller that meets a new template forgets the abort of the one before.
        """
        if self.rollout is None or not (self.observed or self.unprocessed_change):
            return None
        if self.place.theirs:
            return self._changed_by_their_owner(self.rollout)
        asked = foreign_version(self.rollout, self.serving)
        return asked or (_foreign_template(self.rollout, self.revisions) if self.observed else None)

    @property
    def previous(self) -> Revision | None:
        """The version that was stable before the last promotion, as long as an engine of it is up.

        None while another one is on trial: then the way back is the stable.
        """
        if self.trial or not self.stable:
            return None
        stable = self.stable.hash
        waiting = [each for each in self.revisions if each.version == self.remembered and each.hash != stable]
        return next((each for each in waiting if each.wanted and each.available), None)

    @property
    def remembered(self) -> str:
        """The version that the last promotion noted as the way back; empty when none did."""
        if self.place.theirs:
            return self.notes.previous
        return annotation(self.rollout, PREVIOUS)

    @property
    def warm(self) -> dict[str, Revision]:
        """The versions that are up and have no users: each with its latest revision. Anyone who is on trial is none."""
        taken = [each.version for each in (self.stable, self.trial) if each]
        up = [each for each in self.revisions if each.wanted and each.available and each.version not in taken]
        # The latest last, and so the one that stays.
        return {each.version: each for each in reversed(up) if each.version}

    def can_go_back_to(self, version: str) -> bool:
        """Whether that version is warm, or was stable before and is on its way back already."""
        on_its_way = self.trial is not None and self.trial.version == version
        return (version in self.warm and not self.trial) or (self.remembered == version and on_its_way)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on trial, asked for or copied: there is nothing to roll back."""
        asked, *_ = self.asked
        return not self.trial and self.stable is not None and asked == self.stable.version and not self.mirror

    @property
    def on_trial(self) -> str:
        """The version of the trial, or the one that is asked for."""
        return self.trial.version if self.trial else self.asked[0]

    @property
    def step(self) -> int:
        """How far the trial is."""
        return self.argo.step_index

    @property
    def going_on(self) -> bool:
        """Whether something is to be rolled back that nobody else has asked for."""
        ours = self.foreign_change is None and not self.foreign_objects
        return self.stable is not None and not self.is_at_rest and ours

    @property
    def weight(self) -> int:
        """Percent of users on the canary, as the route has it."""
        if self.route is None:
            return 0
        return self.routes.weight(self.route)

    @property
    def weight_that_stays(self) -> int:
        """Percent of users whom a way back leaves on the canary until the stable has engines for them.

        All of them while it has none, and the canary has some: no write of ours sends users to a Service without an
        engine. Else 0.
        """
        without = self.stable and self.trial and not self.stable.available and self.trial.available
        return self.weight if without else 0

    @property
    def is_canary_down(self) -> bool:
        """Whether no engine of the trial is ready: Argo Rollouts then writes weight 0, and leaves step and status."""
        return self.trial is not None and not self.trial.available

    @property
    def is_taken_back(self) -> bool:
        """Whether the trial was aborted and has no user: by the route, since the status says it before."""
        return is_abort_confirmed(self.argo) and self.weight == 0

    @property
    def is_on_stable(self) -> bool:
        """Whether the stable answers all users, and nothing is copied: read, not concluded."""
        up = self.stable is not None and self.stable.available > 0
        return up and self.route is not None and self.weight == 0 and not self.mirror

    @property
    def unprocessed_change(self) -> str:
        """What the controller has not reacted to although it had the time; empty when it owes nothing."""
        debt = pending_reaction(self.rollout) if self.rollout else None
        if debt is None or (debt.since and self.at - debt.since < REACTS_WITHIN):
            return ""
        return debt.text

    @property
    def mirror(self) -> int:
        """Percent of requests copied to the canary, as the route has it."""
        return self.routes.mirror(self.route) if self.route else 0

    @property
    def is_whole(self) -> bool:
        """Whether there is a stable version, and no engine is missing of any that should be up."""
        return self.stable is not None and all(each.is_complete for each in (self.stable, self.trial) if each)

    @property
    def is_settled(self) -> bool:
        """Whether one version serves everybody, and the controller has nothing left to do."""
        return (
            self.observed
            and not self.argo.in_progress
            and not self.argo.promoting_in_full
            and not self.argo.aborted
            and self.weight == 0
            and bool(self.stable and self.stable.available)
        )

    @property
    def is_ready_for_users(self) -> bool:
        """Whether the trial is up with all the engines that it needs first, and rests before it gets anybody."""
        if not (self.observed and self.trial and self.trial.is_complete):
            return False
        return any(self.argo.step_index >= point.pause for point in pause_points(self.argo.steps)[:1])

    def is_up(self, version: str) -> bool:
        """Whether that version serves, or is ready to get users."""
        if self.stable and self.stable.version == version:
            return self.stable.is_complete
        return self.is_ready_for_users and self.trial is not None and self.trial.version == version

    @cached_property
    def health(self) -> RolloutHealth:
        """What the Rollout says of itself, and what it does not."""
        if self.rollout is None:
            return RolloutHealth()
        return health_of(self.rollout, now=self.at)

    def pods_of(self, which: Revision | None) -> Sequence[Json]:
        """Those of one version."""
        return [pod for pod in self.pods if which and hash_of(pod) == which.hash]

    def _changed_by_their_owner(self, rollout: Json) -> ForeignChange | None:
        """Another pod template than the one that a delivery which is open has asked for last."""
        if not self.notes.template or template_digest(self.template) == self.notes.template:
            return None
        version, *_ = self.asked
        return _change(rollout, template_writers(rollout), version, "another pod template", self.serving)

    def _of_hash(self, wanted: str) -> Revision | None:
        return next((each for each in self.revisions if wanted and each.hash == wanted), None)


_VERSION_LABEL = (*TEMPLATE, "f:metadata", "f:labels", f"f:{VERSION}")


def foreign_version(rollout: Json, stable: str) -> ForeignChange | None:
    """What somebody else asks for, as `metadata.managedFields` has it; None when it is tidegate's own operation.

    Anyone who writes a version takes its label over, alone; one who applies the same shares it (Kubernetes,
    "Server-Side Apply"). `stable` is the version that serves.
    """
    entries = template_writers(rollout)
    others = [each for each in entries if each.get("manager") != MANAGER]
    ours = any(owns_field(each, _VERSION_LABEL) for each in entries if each not in others)
    if ours or not others:
        return None
    # Others may own parts of the template that are not at issue; a template without the label has no owner of it.
    claiming = [each for each in others if owns_field(each, _VERSION_LABEL)] or others
    version, *_ = version_labels(Rollout(rollout).spec.get("template") or {})
    return _change(rollout, claiming, version, "a pod template without a version", stable)


def _foreign_template(rollout: Json, revisions: Sequence[Revision]) -> ForeignChange | None:
    """That the pod template of the version that is asked for was changed; None when it is as tidegate wrote it.

    An upgrade of a Helm release that sends an image alone leaves the version's label with us. It is seen by the
    ReplicaSet that comes of it, since no two of ours have the same version and attempt. The controller has seen the
    Rollout; `revisions` are all that the region remembers.
    """
    current = next((each for each in revisions if each.hash == Rollout(rollout).pod_hash), None)
    if current is None or not current.version or current.created is None:
        return None
    twins = (each for each in revisions if (each.version, each.attempt) == (current.version, current.attempt))
    if not any(each.created is not None and each.created < current.created for each in twins):
        return None
    others = [each for each in template_writers(rollout) if each.get("manager") != MANAGER]
    return _change(rollout, others, "", f"another pod template of version {current.version}", "")


def _change(rollout: Json, writers: Sequence[Json], version: str, otherwise: str, stable: str) -> ForeignChange:
    """That the youngest of these writers asks for the version, or for something `otherwise` that has none."""
    # The time is optional; RFC 3339 in UTC sorts as text.
    youngest = max(writers, key=lambda each: str(each.get("time") or ""), default={})
    at = parse_time(youngest.get("time"))
    who = str(youngest.get("manager") or "an unnamed field manager") + (f" at {at:%H:%M:%S} UTC" if at else "")
    what = f"version {version}" if version else otherwise
    again = " again" if version and version == stable else ""
    name = Rollout(rollout).name
    return ForeignChange(version=version, reason=f"somebody changed Rollout {name}: {who} asks for {what}{again}")
