"""`tidegate plan`: what a delivery would do, or what the gates of a file need."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from gates.planning.forecast import forecasts
from gates.traffic import Assumptions, Exposure
from pipelines.adapters.clusters import engines_of
from pipelines.adapters.specs import read_delivery
from pipelines.errors import PlanRefused
from pipelines.judging.gate_sets import read_gates
from pipelines.model import Plan
from pipelines.plan.engines import engine_changes
from pipelines.plan.planner import make_offline_plan
from pipelines.plan.prebuilt import engine_notes
from pipelines.plan.region_objects import EngineCount, engine_counts, guard_image, unprotected
from pipelines.run.git import git_files
from pipelines.spec.delivery import Delivery
from pipelines.spec.policy import golden_set
from registry.model import ModelVersion
from rollouts.errors import KubeconfigWrong, Unfit
from rollouts.manifests.spec import ClusterFleetSpec
from rollouts.model import ForeignObject
from tidegate.cli.settings import Output, given, print_data
from tidegate.cli.views.plan import AnyPlan, forecast_lines, plan_comment, plan_lines
from tidegate.connect import Lies, Reason, preconditions
from tidegate.core.errors import ExitCode, TidegateError
from tidegate.core.process import note
from tidegate.core.text import in_bytes
from tidegate.planning import images_of, plan_for
from tidegate.surroundings import Surroundings


def show_plan(at: Surroundings | None, spec_path: Path, version: str | None) -> int:
    """Print the plan with everything that stands in its way.

    What lies in this machine, or in what one may do from it, is said and changes no exit code.

    Args:
        at: where it would be carried; None for the steps by the spec and its files alone.
        spec_path: of the delivery's spec.
        version: the version's number; None for the one that the alias points at.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    with _no_plan_told(spec_path):
        spec = read_delivery(spec_path)
        if at is None:
            _show(spec, make_offline_plan(spec, prompts=len(golden_set(spec, spec_path.parent))))
            return ExitCode.DELIVERED
        plan = plan_for(spec, at.registry, version=version, preview=True)
        reasons = list(preconditions(at, spec, plan))
    foreign: dict[str, Sequence[ForeignObject]] = {}
    for where, found in _objects_there(spec, plan, at).items():
        if not isinstance(found, TidegateError):
            foreign |= {where: found} if found else {}
        elif isinstance(found, Unfit):
            reasons.append(Reason(found, Lies.SPEC))
        else:
            # A plan is made where no cluster can be reached too, such as in a pull request's pipeline.
            note(f"{where} was not looked at: {found}")
    _show(spec, plan, reasons, foreign)
    counted = [each.error for each in reasons if each.lies is Lies.SPEC]
    return int(counted[0].exit_code if counted else ExitCode.USAGE if foreign else ExitCode.DELIVERED)


@contextmanager
def _no_plan_told(spec_path: Path) -> Iterator[None]:
    try:
        yield
    except TidegateError as error:
        output = given().output
        if output is Output.MARKDOWN:
            print(plan_comment(str(spec_path), f"No plan for {spec_path}", *str(error).splitlines()), end="")
        elif output.is_data and isinstance(error, PlanRefused):
            proposals = [each.model_dump(mode="json") for each in error.proposals]
            print_data({"refused": error.message, "proposals": proposals}, output)
        raise


def _objects_there(
    spec: Delivery, plan: Plan, at: Surroundings
) -> Mapping[str, Sequence[ForeignObject] | TidegateError]:
    """By region, objects of others where the delivery's would be, or why they were not seen."""
    if not isinstance(spec.fleet, ClusterFleetSpec):
        return {}
    # Not above: it imports Kubernetes' client.
    from pipelines.adapters.clusters import foreign_objects_in_clusters

    try:
        engines = engines_of(plan, spec, images_of(plan, spec, at.registry, None))
    except TidegateError:
        # No image is known, of which the preconditions tell.
        engines = ()
    try:
        return asyncio.run(foreign_objects_in_clusters(spec, spec.fleet, engines))
    # Of a context that is not there the preconditions tell.
    except KubeconfigWrong:
        return {}
    except TidegateError as error:
        return {"every region": error}


def _show(
    spec: Delivery,
    plan: AnyPlan,
    reasons: Sequence[Reason] = (),
    foreign: Mapping[str, Sequence[ForeignObject]] | None = None,
) -> None:
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    data, lines = {"steps": steps, "expected_seconds": plan.expected_seconds}, list[str]()
    for told, said in (*_of_spec(spec, plan), *_in_its_way(reasons, foreign or {})):
        data |= told
        lines += said
    if given().output is Output.MARKDOWN:
        print(plan_comment(str(spec.path), *plan_lines(plan), *lines), end="")
    else:
        given().show(plan.model_dump(mode="json") | data, *plan_lines(plan), *lines)


Told = tuple[dict[str, object], Iterable[str]]
"""The same for programs, and in lines for people."""


def _of_spec(spec: Delivery, plan: AnyPlan) -> Iterator[Told]:
    """What is to be known besides the steps: of versions, engines, the guard, Git, and what changes of the engine."""
    versions = (plan.champion, plan.version) if isinstance(plan, Plan) else ()
    if unproven := [version for version in versions if not version.digest]:
        adopts = [{"model": each.uri, "size_bytes": each.size_bytes} for each in unproven]
        yield {"adopts": adopts}, map(_adoption, unproven)
    engines = engine_counts(spec)
    yield {"engines": [each.model_dump(mode="json") for each in engines]}, map(_held, engines)
    guard: dict[str, object] = {"guard": guard_image(spec) or None} if isinstance(spec.fleet, ClusterFleetSpec) else {}
    yield guard, unprotected(spec)
    if spec.git:
        paths = list(git_files(spec, spec.regions.names, engine="", image=""))
        yield {"git": paths}, (f"in the end, on {spec.git.branch} of Git: {', '.join(paths)}",)
    notes = list(engine_notes(spec))
    yield {"engine_notes": notes} if spec.engine.image else {}, notes
    if isinstance(plan, Plan) and plan.engine and plan.champion_engine:
        yield {}, (f"engine.{each}" for each in engine_changes(plan.champion_engine, plan.engine))


def _in_its_way(reasons: Sequence[Reason], foreign: Mapping[str, Sequence[ForeignObject]]) -> Iterator[Told]:
    """What others have where the objects would be, and why `deliver` would not begin."""
    if foreign:
        named = {region: [each.model_dump(mode="json") for each in there] for region, there in foreign.items()}
        refused = (f"{region}: {each}: `deliver` refuses" for region, there in foreign.items() for each in there)
        yield {"foreign_objects": named}, refused
    refusals = [str(each.error) for each in reasons]
    yield {"refusals": refusals}, (f"`deliver` would not begin: {each}" for each in refusals)


def _adoption(version: ModelVersion) -> str:
    size = f", {in_bytes(version.size_bytes)}" if version.size_bytes else ""
    return (
        f"{version.uri} was logged by others and has no digests yet: `deliver` reads its files once{size}; "
        f"beforehand: tidegate model add {version.name} {version.version}"
    )


def _held(count: EngineCount) -> str:
    cost = f", {count.per_hour:,.2f} {count.currency} an hour" if count.per_hour is not None else ""
    warm = f"; {count.warm} more are kept warm after a promotion" if count.warm else ""
    return (
        f"{count.region}: {count.serving} engines serve, {count.first} more come without users, "
        f"{count.most} at most{cost}{warm}"
    )


def show_forecasts(
    gates: Path,
    *,
    requests_per_second: float | None,
    weight: float,
    pairs_per_second: float | None,
    within: timedelta,
) -> int:
    """Print what every gate of a file needs; the exit code is 3 when one would not pass a healthy version in time."""
    judged = read_gates(gates)
    terms = judged.planned(within)
    exposure = Exposure(
        requests_per_second=requests_per_second,
        percent=weight if terms.mirrored is None else terms.mirrored * 100,
        mirrored=terms.mirrored is not None,
        pairs_per_second=pairs_per_second,
        within_seconds=within.total_seconds(),
        look_seconds=judged.look.total_seconds(),
    )
    assumed = Assumptions()
    found = forecasts(terms, exposure, assumed)
    told = [forecast.model_dump(mode="json") for forecast in found]
    data = {"name": judged.name, "expected": assumed.model_dump(), "gates": told}
    given().show(data, *forecast_lines(judged.name, found, assumed))
    return ExitCode.DELIVERED if all(forecast.reachable for forecast in found) else ExitCode.INCONCLUSIVE
