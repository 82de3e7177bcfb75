"""A snapshot of a region's objects, and what can be read from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rollouts.argo.model import (
    Rollout,
    RolloutHealth,
    controlled_by,
    hash_of,
    health_of,
    is_abort_confirmed,
    pause_points,
    pending_reaction,
    revision_of,
    waiting_for_controller,
)
from rollouts.cluster.model import RegionConfig, RegionView, Revision, annotation, version_labels
from rollouts.cluster.reference import TEMPLATE, RegionNotes, template_digest, template_writers, version_in
from rollouts.kube.objects import owns_field, time_at
from rollouts.kube.resources import MANAGER
from rollouts.manifests.conventions import PREVIOUS
from rollouts.model import ForeignChange
from tidegate.core.model import Json
from tidegate.core.names import VERSION

REACTS_WITHIN = timedelta(seconds=10)
"""A controller that is well takes a second or two."""


class RegionSnapshot(RegionView):
    """A region at one moment. What is not there is None."""

    def __init__(
        self,
        at: datetime,
        place: RegionConfig,
        rollout: Json | None = None,
        replica_sets: Sequence[Json] = (),
        route: Json | None = None,
        *,
        notes: RegionNotes | None = None,
        workload: Json | None = None,
    ) -> None:
        """`rollout` has the pod template of its `workload`, the Deployment of its `workloadRef`.

        `notes` are what the Lease remembers of a Rollout of others.
        """
        super().__init__(place, rollout, route)
        self.at, self.place, self.rollout, self.route, self.workload = at, place, rollout, route, workload
        self.replica_sets, self.notes = replica_sets, notes or RegionNotes()
        self.pods: Sequence[Json] = ()
        """Of the delivery; read only while some engine is missing."""
        self.argo = Rollout(rollout or {"metadata": {}})
        """The Rollout as Argo Rollouts reads it; empty when there is none."""
        own = map(self._revision, controlled_by(rollout, replica_sets)) if rollout else ()
        self.revisions = sorted(own, key=lambda each: each.number, reverse=True)
        """All that the Rollout remembers, the latest first."""
        self.observed = rollout is not None and not waiting_for_controller(rollout)
        """Whether the controller has seen the Rollout as it is now."""
        self.health = health_of(rollout, now=at) if rollout else RolloutHealth()
        self.stable = self._of_hash(self.argo.stable_hash)
        """The version that was last promoted in full."""
        self.serving = self.stable.version if self.stable else ""
        self.trial = self._of_hash(self.argo.pod_hash) if self.argo.stable_hash and self.argo.in_progress else None
        """The version that is on its way to replace the stable one, rolled back or not."""
        self.on_stable = bool(self.stable and self.stable.available)
        """Whether an engine of it is ready."""
        self.template: Json = self.argo.spec.get("template") or {}
        self.asked = self.version_of(self.template)
        """Version, digest and attempt that the Rollout's template asks for, seen by the controller or not."""
        self.weight, self.mirror = (place.routes.weight(route), place.routes.mirror(route)) if route else (0, 0)
        """Percent of users on the canary, and of copies, as the route has it."""
        self.on_trial, self.step = self.trial.version if self.trial else self.asked[0], self.argo.step_index
        """How far the trial is."""
        self.remembered = self.notes.previous if place.theirs else annotation(rollout, PREVIOUS)
        """The version that the last promotion noted as the way back; empty when none did."""
        self.is_canary_down = self.trial is not None and not self.trial.available
        """Whether no engine of the trial is ready: Argo Rollouts then writes weight 0, and leaves step and status."""
        self.is_taken_back = is_abort_confirmed(self.argo) and self.weight == 0
        """Whether the trial was aborted and has no user: by the route, since the status says it before."""
        self.is_on_stable = self.on_stable and route is not None and self.weight == 0 and not self.mirror
        """Whether the stable answers all users, and nothing is copied: read, not concluded."""
        left = self.stable and self.trial and not self.on_stable and self.trial.available
        self.weight_that_stays = self.weight if left else 0
        """Percent of users whom a way back leaves on the canary until the stable has engines for them.

        All of them while it has none, and the canary has some: no write of ours sends users to a Service without one.
        """
        debt = pending_reaction(rollout) if rollout else None
        late = debt is not None and not (debt.since and at - debt.since < REACTS_WITHIN)
        self.unprocessed_change = debt.text if debt and late else ""
        """What the controller has not reacted to although it had the time; empty when it owes nothing."""
        busy = self.argo.in_progress or self.argo.promoting_in_full or self.argo.aborted
        self.is_settled = self.observed and not busy and self.weight == 0 and self.on_stable
        """Whether one version serves everybody, and the controller has nothing left to do."""
        self.is_at_rest = bool(self.stable and not self.trial and self.asked[0] == self.serving and not self.mirror)
        """Whether nothing is on trial, asked for or copied: there is nothing to roll back."""
        self.is_whole = self.stable is not None and all(each.is_complete for each in (self.stable, self.trial) if each)
        """Whether there is a stable version, and no engine is missing of any that should be up."""

    def version_of(self, template: Json) -> tuple[str, str, int]:
        """Version, digest and attempt of a pod template."""
        theirs = self.place.theirs
        return version_in(template, theirs, self.notes) if theirs else version_labels(template)

    def _revision(self, replica_set: Json) -> Revision:
        version, digest, attempt = self.version_of(replica_set["spec"]["template"])
        return Revision(
            hash=hash_of(replica_set),
            version=version,
            digest=digest,
            number=revision_of(replica_set),
            attempt=attempt,
            wanted=int(replica_set["spec"].get("replicas") or 0),
            available=int((replica_set.get("status") or {}).get("availableReplicas") or 0),
            created=time_at(replica_set, "metadata", "creationTimestamp"),
            replica_set=replica_set,
        )

    @property
    def foreign_change(self) -> ForeignChange | None:
        """What somebody else than tidegate asks for; None when the template's version is our own operation.

        None too until the controller acted on it, or had the time: an abort that is sent before is lost, since a
        controller that meets a new template forgets the abort of the one before.
        """
        if self.rollout is None or not (self.observed or self.unprocessed_change):
            return None
        if self.place.theirs:
            # Another pod template than the one that a delivery which is open has asked for last.
            if not self.notes.template or template_digest(self.template) == self.notes.template:
                return None
            writers, what = template_writers(self.rollout), "another pod template"
            return _change(self.rollout, writers, self.asked[0], what, self.serving)
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
    def going_on(self) -> bool:
        """Whether something is to be rolled back that nobody else has asked for."""
        ours = self.foreign_change is None and not self.foreign_objects
        return self.stable is not None and not self.is_at_rest and ours

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

    def pods_of(self, which: Revision | None) -> Sequence[Json]:
        """Those of one version."""
        return [pod for pod in self.pods if which and hash_of(pod) == which.hash]

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
    at = time_at(youngest, "time")
    who = str(youngest.get("manager") or "an unnamed field manager") + (f" at {at:%H:%M:%S} UTC" if at else "")
    what = f"version {version}" if version else otherwise
    again = " again" if version and version == stable else ""
    name = Rollout(rollout).name
    return ForeignChange(version=version, reason=f"somebody changed Rollout {name}: {who} asks for {what}{again}")
