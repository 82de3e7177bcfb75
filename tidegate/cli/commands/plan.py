"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import PlanRefused
from pipelines.model import Plan
from pipelines.plan.engines import engine_changes
from pipelines.plan.prebuilt import engine_notes
from pipelines.plan.region_objects import EngineCount, engine_counts, guard_image, nobody_ends_it
from pipelines.spec.delivery import Delivery
from registry.model import ModelVersion
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import ForeignObject
from tidegate.app.git.preview import GitPreview, preview_git
from tidegate.app.plan import images_of, offline_plan, plan_for, require_files
from tidegate.app.wiring.engines.providers import require_gpus_here
from tidegate.app.wiring.specs import read_delivery
from tidegate.app.wiring.stores import open_registry
from tidegate.app.wiring.trust import named_trust, trusted_images
from tidegate.cli.output import Output, print_data, say
from tidegate.cli.views.plan import AnyPlan, plan_markdown, print_plan, refusal_markdown
from tidegate.core.adapters.extras import NotInstalled
from tidegate.core.errors import ExitCode, OutsideError, Refused, TidegateError
from tidegate.core.text import in_bytes

if TYPE_CHECKING:
    from pipelines.plan.scrapes import Scraped


@dataclass(frozen=True)
class _Shown:
    """A plan, and what stands in its way."""

    spec: Delivery
    plan: AnyPlan
    refusals: Sequence[TidegateError] = ()
    """Why `deliver` would not begin."""
    scraped: Sequence[Scraped] = ()
    foreign_objects: Mapping[str, Sequence[ForeignObject]] = field(default_factory=dict)
    git: GitPreview | None = None
    """What would be committed; None where the spec names no repository, or it was not asked."""

    @property
    def exit_code(self) -> int:
        """That of `deliver`, where it would be refused."""
        if self.refusals:
            return int(self.refusals[0].exit_code)
        return int(ExitCode.USAGE if self.foreign_objects else ExitCode.DELIVERED)


def show_plan(spec_path: Path, state: Path, tracking_uri: str | None, *, offline: bool, output: Output) -> int:
    """Print the plan with what stands in its way where clusters can be reached; `offline` asks nobody.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    with _no_plan_told(spec_path, output):
        spec = read_delivery(spec_path)
        if offline:
            found = _Shown(spec, offline_plan(spec, spec_path.parent))
        else:
            found = _planned(spec, spec_path, state, tracking_uri)
    return _show(found, spec_path, output)


def show_dry_run(spec: Delivery, spec_path: Path, plan: Plan, refusals: Sequence[TidegateError], output: Output) -> int:
    """Print the plan of a delivery, and every reason for which it would not begin now."""
    return _show(_Shown(spec, plan, refusals), spec_path, output)


def _planned(spec: Delivery, spec_path: Path, state: Path, tracking_uri: str | None) -> _Shown:
    registry = open_registry(state, tracking_uri)
    plan = plan_for(spec, spec_path.parent, registry, preview=True)
    refusals: list[TidegateError] = []
    images: Mapping[str, str] = {}
    try:
        require_files(spec, plan, registry)
    except NotInstalled as error:
        refusals.append(error)
    try:
        require_gpus_here(spec)
    except OutsideError as error:
        refusals.append(error)
    try:
        images = images_of(plan, spec, registry, trusted_images(named_trust(spec_path.parent)))
    except Refused as error:
        refusals.append(error)
    git: GitPreview | None = None
    try:
        git = preview_git(spec, plan, images)
    except TidegateError as error:
        refusals.append(error)
    return _Shown(spec, plan, refusals, _scraped(spec), _foreign_objects(spec), git)


@contextmanager
def _no_plan_told(spec_path: Path, output: Output) -> Iterator[None]:
    try:
        yield
    except TidegateError as error:
        if output is Output.MARKDOWN:
            print(refusal_markdown(str(spec_path), str(error)), end="")
        elif output.is_data and isinstance(error, PlanRefused):
            proposals = [each.model_dump(mode="json") for each in error.proposals]
            print_data({"refused": error.message, "proposals": proposals}, output)
        raise


def _show(found: _Shown, spec_path: Path, output: Output) -> int:
    if output.is_data:
        print_data(_as_data(found), output)
        return found.exit_code
    spec = found.spec
    lines = [_adoption(each) for each in _without_digests(found.plan)]
    lines += [*(_held(each) for each in engine_counts(spec)), *(each.warning for each in found.scraped if each.warning)]
    lines += [line for line in (nobody_ends_it(spec), *engine_notes(spec)) if line]
    lines += _engine_lines(found.plan)
    lines += found.git.lines if found.git else []
    lines += [f"{region}: {each}: `deliver` refuses" for region, all_ in found.foreign_objects.items() for each in all_]
    lines += [f"`deliver` would not begin: {error}" for error in found.refusals]
    if output.value == Output.MARKDOWN.value:
        print(plan_markdown(found.plan, str(spec_path), lines), end="")
        return found.exit_code
    print_plan(found.plan)
    for line in lines:
        say(line)
    return found.exit_code


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


def _as_data(found: _Shown) -> dict[str, object]:
    plan, spec = found.plan, found.spec
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
    told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
    unproven = [{"model": each.uri, "size_bytes": each.size_bytes} for each in _without_digests(plan)]
    told |= {"adopts": unproven} if unproven else {}
    told |= {"refusals": [str(error) for error in found.refusals]}
    told |= {"scraped": [each.as_data() for each in found.scraped]} if found.scraped else {}
    others = found.foreign_objects
    named = {region: [each.model_dump(mode="json") for each in there] for region, there in others.items()}
    told |= {"foreign_objects": named} if named else {}
    told |= {"engine_notes": list(engine_notes(spec))} if spec.engine.image else {}
    told |= (
        {"git": {str(wave): [each.model_dump() for each in edits] for wave, edits in found.git.waves.items()}}
        if (found.git)
        else {}
    )
    told |= {"guard": guard_image(spec) or None} if isinstance(spec.fleet, ArgoFleetSpec) else {}
    return plan.model_dump(mode="json") | told


def _without_digests(plan: AnyPlan) -> list[ModelVersion]:
    if not isinstance(plan, Plan):
        return []
    return [version for version in (plan.champion, plan.version) if not version.digest]


def _engine_lines(plan: AnyPlan) -> list[str]:
    """What differs between the engine in production and the one to deliver."""
    if isinstance(plan, Plan) and plan.engine and plan.champion_engine:
        return [f"engine.{each}" for each in engine_changes(plan.champion_engine, plan.engine)]
    return []


def _adoption(version: ModelVersion) -> str:
    size = f", {in_bytes(version.size_bytes)}" if version.size_bytes else ""
    return (
        f"{version.uri} was logged by others and has no digests yet: `deliver` reads its files once{size}; "
        f"beforehand: tidegate model add {version.name} {version.version}"
    )


def _held(count: EngineCount) -> str:
    cost = f", {count.per_hour:,.2f} {count.currency} an hour" if count.per_hour is not None else ""
    warm = f"; up to {count.warm} more are kept warm after promotions" if count.warm else ""
    return (
        f"{count.region}: {count.serving} engines serve, {count.first} more come without users, "
        f"{count.most} at most{cost}{warm}"
    )
