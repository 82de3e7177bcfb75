"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.adapters.clusters import engines_of
from pipelines.adapters.specs import read_delivery
from pipelines.errors import PlanRefused
from pipelines.model import Plan
from pipelines.plan.engines import engine_changes
from pipelines.plan.planner import make_offline_plan
from pipelines.plan.prebuilt import engine_notes
from pipelines.plan.region_objects import EngineCount, engine_counts, guard_image, unprotected
from pipelines.run.git import GitPreview
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from pipelines.statements import Prover
from registry.model import ModelVersion
from rollouts.errors import KubeconfigWrong, Unfit
from rollouts.manifests.spec import ClusterFleetSpec
from rollouts.model import Engine, ForeignObject
from tidegate.cli.output import Output, print_data, say
from tidegate.cli.views.plan import AnyPlan, plan_markdown, print_plan, refusal_markdown
from tidegate.connect import Lies, Reason, preconditions_here, preconditions_of
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.process import note
from tidegate.core.text import in_bytes
from tidegate.planning import images_of, plan_for
from tidegate.surroundings import Surroundings


@dataclass(frozen=True)
class _Shown:
    """A plan, and what stands in its way."""

    spec: Delivery
    plan: AnyPlan
    reasons: Sequence[Reason] = ()
    """Why `deliver` would not begin."""
    foreign_objects: Mapping[str, Sequence[ForeignObject]] = field(default_factory=dict)
    git: GitPreview | None = None
    """What would be committed; None where the spec names no repository, or it was not asked."""


def show_plan(
    at: Surroundings | None,
    spec_path: Path,
    output: Output,
    *,
    version: str | None = None,
    users: bool = False,
    asker: Prover | None = None,
    here: bool = False,
) -> int:
    """Print the plan with everything that stands in its way.

    Args:
        at: where it would be carried; None for the steps by the spec and its files alone.
        spec_path: of the delivery's spec.
        output: its form.
        version: the version's number; None for the one that the alias points at.
        users: whether users would be played.
        asker: proves who would ask for it.
        here: whether it would be carried here and now: then the exit code is that of the first reason; else what lies
            in this machine, or in what one may do from it, is said and changes no exit code.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    with _no_plan_told(spec_path, output):
        spec = read_delivery(spec_path)
        if at is None:
            _show(_Shown(spec, make_offline_plan(spec, prompts=len(golden_set(spec, spec_path.parent)))), output)
            return ExitCode.DELIVERED
        plan = plan_for(spec, at.registry, version=version, preview=True)
        git: list[GitPreview] = []
        reasons = list(preconditions_here(at, spec, users=users, asker=asker))
        reasons += preconditions_of(at, spec, plan, git.append)
    foreign, unseen = _foreign_objects(spec, _engines(spec, plan, at))
    for where, error in unseen.items():
        if here or isinstance(error, Unfit):
            reasons.append(Reason(error, Lies.SPEC if isinstance(error, Unfit) else Lies.HERE))
        else:
            # A plan is made where no cluster can be reached too, such as in a pull request's pipeline.
            note(f"{where} was not looked at: {error}")
    found = _Shown(spec, plan, reasons, foreign, next(iter(git), None))
    _show(found, output)
    counted = [each.error for each in reasons if here or each.lies is Lies.SPEC]
    if counted:
        return int(counted[0].exit_code)
    return int(ExitCode.USAGE if found.foreign_objects else ExitCode.DELIVERED)


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


def _show(found: _Shown, output: Output) -> None:
    if output.is_data:
        print_data(_as_data(found), output)
        return
    spec = found.spec
    lines = [_adoption(each) for each in _without_digests(found.plan)]
    lines += [*(_held(each) for each in engine_counts(spec)), *unprotected(spec), *engine_notes(spec)]
    lines += _engine_lines(found.plan)
    lines += found.git.lines if found.git else []
    lines += [f"{region}: {each}: `deliver` refuses" for region, all_ in found.foreign_objects.items() for each in all_]
    lines += [f"`deliver` would not begin: {each.error}" for each in found.reasons]
    if output is Output.MARKDOWN:
        print(plan_markdown(found.plan, str(spec.path), lines), end="")
        return
    print_plan(found.plan)
    say(*lines)


def _engines(spec: Delivery, plan: Plan, at: Surroundings) -> Sequence[Engine]:
    """What serves and what is delivered; none where no image is known, of which the preconditions tell."""
    try:
        return engines_of(plan, spec, images_of(plan, spec, at.registry, None))
    except TidegateError:
        return ()


def _foreign_objects(
    spec: Delivery, engines: Sequence[Engine]
) -> tuple[Mapping[str, Sequence[ForeignObject]], Mapping[str, TidegateError]]:
    """Objects of others where the delivery's would be, by region, and why others were not seen."""
    if not isinstance(spec.fleet, ClusterFleetSpec):
        return {}, {}
    # Not above: it imports Kubernetes' client.
    from pipelines.adapters.clusters import foreign_objects_in_clusters

    try:
        looked = asyncio.run(foreign_objects_in_clusters(spec, spec.fleet, engines))
    # Of a context that is not there the preconditions tell.
    except KubeconfigWrong:
        return {}, {}
    except TidegateError as error:
        return {}, {"every region": error}
    unseen = {region: each for region, each in looked.items() if isinstance(each, TidegateError)}
    return {region: each for region, each in looked.items() if each and not isinstance(each, TidegateError)}, unseen


def _as_data(found: _Shown) -> dict[str, object]:
    plan, spec = found.plan, found.spec
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
    told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
    unproven = [{"model": each.uri, "size_bytes": each.size_bytes} for each in _without_digests(plan)]
    told |= {"adopts": unproven} if unproven else {}
    told |= {"refusals": [str(each.error) for each in found.reasons]}
    others = found.foreign_objects
    named = {region: [each.model_dump(mode="json") for each in there] for region, there in others.items()}
    told |= {"foreign_objects": named} if named else {}
    told |= {"engine_notes": list(engine_notes(spec))} if spec.engine.image else {}
    told |= (
        {"git": {str(wave): [each.model_dump() for each in edits] for wave, edits in found.git.waves.items()}}
        if (found.git)
        else {}
    )
    told |= {"guard": guard_image(spec) or None} if isinstance(spec.fleet, ClusterFleetSpec) else {}
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
