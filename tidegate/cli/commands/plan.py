"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.model import Plan
from pipelines.plan.engines import engine_changes
from pipelines.plan.prebuilt import engine_notes
from pipelines.plan.region_objects import EngineCount, engine_counts, guard_image, nobody_ends_it
from pipelines.spec.delivery import Delivery
from registry.model import ModelVersion
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.app.plan import images_of, plan_for
from tidegate.app.wiring.specs import read_delivery
from tidegate.app.wiring.stores import open_registry
from tidegate.app.wiring.trust import trust_next_to, trusted_images
from tidegate.cli.output import PlanOutput, print_data
from tidegate.cli.views.plan import (
    plan_markdown,
    print_plan,
    refusal_markdown,
)
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.text import in_bytes

if TYPE_CHECKING:
    from pipelines.plan.scrapes import Scraped


def show_plan(spec_path: Path, state: Path, tracking_uri: str | None, *, output: PlanOutput) -> int:
    """Print the plan with what stands in its way where clusters can be reached.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    try:
        spec = read_delivery(spec_path)
        registry = open_registry(state, tracking_uri)
        plan = plan_for(spec, spec_path.parent, registry, preview=True)
        if trusted := trusted_images(trust_next_to(spec_path.parent)):
            images_of(plan, spec, registry, trusted)
    except TidegateError as error:
        if output is PlanOutput.MARKDOWN:
            print(refusal_markdown(str(spec_path), str(error)), end="")
        raise
    seen, foreign_objects = _scraped(spec), _foreign_objects(spec)
    code = int(ExitCode.USAGE if foreign_objects else ExitCode.DELIVERED)
    if output.is_data:
        print_data(_as_data(plan, spec, seen, foreign_objects), output)
        return code
    held = [_adoption(each) for each in _without_digests(plan)]
    held += [*(_held(each) for each in engine_counts(spec)), *(each.warning for each in seen if each.warning)]
    held += [line for line in (nobody_ends_it(spec), *engine_notes(spec)) if line]
    if plan.engine and plan.champion_engine:
        held += [f"engine.{each}" for each in engine_changes(plan.champion_engine, plan.engine)]
    held += [f"{region}: {each}: `deliver` refuses" for region, others in foreign_objects.items() for each in others]
    if output is PlanOutput.MARKDOWN:
        print(plan_markdown(plan, str(spec_path), held), end="")
        return code
    print_plan(plan)
    for line in held:
        print(line)
    return code


def _foreign_objects(spec: Delivery) -> Mapping[str, Sequence[ForeignObject]]:
    """Objects of others where the delivery's would be, by region; none on this machine."""
    if not isinstance(spec.fleet, ArgoFleetSpec):
        return {}
    # Not above: it imports Kubernetes' client.
    from tidegate.app.wiring.clusters import foreign_objects_in_clusters

    return foreign_objects_in_clusters(spec, spec.fleet)


def _scraped(spec: Delivery) -> Sequence[Scraped]:
    """What each region's Prometheus says; nothing of the fleet on this machine, whose Prometheus is our own."""
    fleet = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        return ()
    # Not above: a plan for this machine asks nobody.
    from pipelines.plan.scrapes import scraped
    from tidegate.app.wiring.fleets import prometheus_of

    return asyncio.run(scraped(spec, {region: prometheus_of(fleet, region) for region in fleet.regions}))


def _as_data(
    plan: Plan, spec: Delivery, seen: Sequence[Scraped], foreign_objects: Mapping[str, Sequence[ForeignObject]]
) -> dict[str, object]:
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
    told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
    told |= {"scraped": [each.as_data() for each in seen]} if seen else {}
    named = {region: [each.model_dump(mode="json") for each in others] for region, others in foreign_objects.items()}
    unproven = [{"model": each.uri, "size_bytes": each.size_bytes} for each in _without_digests(plan)]
    told |= {"adopts": unproven} if unproven else {}
    told |= {"foreign_objects": named, "strangers": named} if named else {}  # codespell:ignore strangers
    told |= {"engine_notes": list(engine_notes(spec))} if spec.engine.image else {}
    told |= {"guard": guard_image(spec) or None} if isinstance(spec.fleet, ArgoFleetSpec) else {}
    return plan.model_dump(mode="json") | told


def _without_digests(plan: Plan) -> list[ModelVersion]:
    return [version for version in (plan.champion, plan.version) if not version.digest]


def _adoption(version: ModelVersion) -> str:
    size = f", {in_bytes(version.size_bytes)}" if version.size_bytes else ""
    return (
        f"{version.uri} was logged by others and has no digests yet: `deliver` reads its files once{size}; "
        f"beforehand: tidegate model adopt {version.name} {version.version}"
    )


def _held(count: EngineCount) -> str:
    cost = f", {count.per_hour:,.2f} {count.currency} an hour" if count.per_hour is not None else ""
    warm = f"; up to {count.warm} more are kept warm after promotions" if count.warm else ""
    return (
        f"{count.region}: {count.serving} engines serve, {count.first} more come without users, "
        f"{count.most} at most{cost}{warm}"
    )
