"""The plan of a delivery for the versions that the aliases point at now, and what is resolved when it is opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from gates.analyses.mean import assessing
from gates.model import ArmKey
from pipelines.authority.answering import who_asks
from pipelines.authority.engine_images import TrustedImages, pinned_image
from pipelines.events.artifacts import digests_of, laid_out
from pipelines.model import Plan, Resolved
from pipelines.plan.engines import planned_engines
from pipelines.plan.planner import make_plan, settings_digest
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from registry.errors import UnknownAlias
from registry.versions import MlflowRegistry
from rollouts.manifests.spec import ClusterFleetSpec
from rollouts.model import NOT_OURS_TO_START
from tidegate.core.clock import SystemClock
from tidegate.core.errors import UsageError
from tidegate.core.process import user_name
from tidegate.core.units import format_duration
from tidegate.surroundings import Surroundings


def adopt_versions(spec: Delivery, registry: MlflowRegistry, *, version: str | None = None) -> None:
    """Note the digests of those versions of a delivery that were logged by others; nothing when they have them.

    Raises:
        UnfitModel: one cannot be served.
    """
    with _champion_first(spec):
        registry.adopt(spec.model.name, spec.model.target)
    registry.adopt(spec.model.name, version or spec.model.origin)


@contextmanager
def _champion_first(spec: Delivery) -> Iterator[None]:
    """Where no version is champion yet, there is nothing to compare with: say what serves the first one."""
    try:
        yield
    except UnknownAlias as error:
        serves = "a delivery" if isinstance(spec.fleet, ClusterFleetSpec) else "`tidegate fleet up`"
        raise UnknownAlias(
            error.message, hint=f"{error.hint}; {serves} starts a first version that has it, without gates"
        ) from error


def plan_for(spec: Delivery, registry: MlflowRegistry, *, version: str | None = None, preview: bool = False) -> Plan:
    """The plan for what the aliases point at now, or for the version with that number.

    Raises:
        UsageError: the champion itself is meant, and its engine is the one in production, or nobody recorded that.
        UnfitModel: a version has no digests; with `preview` it is planned all the same.
    """
    find = registry.preview if preview else registry.resolve
    with _champion_first(spec):
        champion = find(spec.model.name, spec.model.target)
    wanted = find(spec.model.name, version or spec.model.origin)
    tags = {each.version: registry.tags(each) for each in (wanted, champion)}
    engine, serving = planned_engines(spec, wanted, champion, tags)
    plan = make_plan(spec, wanted, champion, prompts=len(golden_set(spec, spec.path.parent)))
    return plan.model_copy(update={"engine": engine, "champion_engine": serving})


def settle(at: Surroundings, spec: Delivery, *, version: str | None = None) -> Plan:
    """The plan of a delivery, with all that is settled when it is opened, and never looked up again.

    Versions that were logged by others get digests first.

    Raises:
        UnfitModel: a version cannot be served.
        NoImage: a version that clusters shall serve has no image by digest.
        UntrustedImage: an image is not what the trust file asks for, or an engine of another version.
    """
    adopt_versions(spec, at.registry, version=version)
    plan = plan_for(spec, at.registry, version=version)
    resolved = Resolved(
        spec=sha256(spec.path.read_bytes()).hexdigest(),
        gates=settings_digest(spec),
        files=_kept_digests(spec),
        images=images_of(plan, spec, at.registry, at.images),
        requested_by=who_asks(os.environ, user=user_name(), host=socket.gethostname()),
    )
    return plan.model_copy(update={"resolved": resolved})


def images_of(plan: Plan, spec: Delivery, registry: MlflowRegistry, trusted: TrustedImages | None) -> dict[str, str]:
    """The engine images that clusters are to serve, by the version's number, each proven; none for this machine.

    Raises:
        NoImage, UntrustedImage: as `settle`.
    """
    if not isinstance(spec.fleet, ClusterFleetSpec):
        return {}
    versions = {plan.on_trial: plan.version, plan.in_production: plan.champion}
    if not spec.fleet.runs_images:
        return dict.fromkeys(versions, NOT_OURS_TO_START)
    own = spec.engine.image.reference if spec.engine.image else ""
    recorded = {plan.in_production: plan.champion_engine.image} if plan.champion_engine else {}
    images = {
        name: recorded.get(name) or own or pinned_image(version, registry.tags(version))
        for name, version in versions.items()
    }
    if trusted:
        for name, image in images.items():
            trusted.prove(versions[name], image)
    # The spec is kept with the delivery, and settles its own.
    return {} if own else images


def _kept_digests(spec: Delivery) -> dict[str, str]:
    """The digests of what is kept; none of a spec that cannot be, which is said where it is to be kept."""
    try:
        return digests_of(laid_out(spec.path, spec)[1])
    except UsageError:
        return {}


def require_assessments(spec: Delivery, plan: Plan, registry: MlflowRegistry) -> None:
    """Look for the newest assessments of the version in production, for gates that compare them.

    Raises:
        UsageError: there are none: such a gate would see nothing.
        OutsideError: MLflow does not answer.
    """
    now = SystemClock().now()
    for gate, asked in assessing(spec.gates.asked).items():
        begin, last = now - asked.scored_within, format_duration(asked.scored_within)
        for region in spec.regions.names:
            tags = asked.of(ArmKey(region=region, role="stable", version=plan.in_production))
            found = registry.assessed(asked.name, asked.experiment, tags, traced=begin, since=begin, until=now)
            if isinstance(found, str):
                place = f"{spec.path}: gates.{gate}.assessments"
                hint = "check the names, and that a scorer runs; `scored_within` says how late it may be"
                raise UsageError(f"{place}: {found}; looked at the last {last}", hint=hint)
