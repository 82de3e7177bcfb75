"""`tidegate plan`: what a delivery would do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.engine_count import EngineCount, engine_counts
from pipelines.model import Plan
from pipelines.spec import Delivery
from rollouts.manifests.spec import ArgoFleetSpec
from rollouts.model import Stranger
from tidegate.cli.compose import images_of, make_plan_of, open_registry, read_delivery
from tidegate.cli.output import print_json
from tidegate.cli.plan_markdown import plan_markdown, refusal_markdown
from tidegate.cli.plan_rows import PLAN_COLUMNS, approvals, plan_notes, plan_rows, whole_time
from tidegate.cli.trusted import trusted_beside, trusted_images
from tidegate.core.errors import ExitCode, TidegateError

if TYPE_CHECKING:
    from pipelines.scraped import Scraped


def run(spec_path: Path, state: Path, tracking_uri: str | None, *, output: str) -> int:
    """Print the plan as `text`, `json` or `markdown`, with what stands in its way where clusters can be reached.

    Raises:
        TidegateError: there is no plan; as Markdown that is printed too, since a comment must say so.
    """
    try:
        spec = read_delivery(spec_path)
        registry = open_registry(state, tracking_uri)
        plan = make_plan_of(spec, spec_path.parent, registry)
        if trusted := trusted_images(trusted_beside(spec_path.parent)):
            images_of(plan, spec, registry, trusted)
    except TidegateError as error:
        if output == "markdown":
            print(refusal_markdown(str(spec_path), str(error)), end="")
        raise
    seen, strangers = _scraped(spec), _strangers(spec)
    code = int(ExitCode.USAGE if strangers else ExitCode.DELIVERED)
    if output == "json":
        _print_json(plan, spec, seen, strangers)
        return code
    held = [*(_held(each) for each in engine_counts(spec)), *(each.warning for each in seen if each.warning)]
    held += [f"{region}: {each}: `deliver` refuses" for region, others in strangers.items() for each in others]
    if output == "markdown":
        print(plan_markdown(plan, str(spec_path), held), end="")
        return code
    print_plan(plan)
    for line in held:
        print(line)
    return code


def _strangers(spec: Delivery) -> Mapping[str, Sequence[Stranger]]:
    """Objects of others where the delivery's would be, by region; none on this machine."""
    if not isinstance(spec.fleet, ArgoFleetSpec):
        return {}
    # Not above: it imports Kubernetes' client.
    from tidegate.cli.strangers import found_in_clusters

    return found_in_clusters(spec, spec.fleet)


def _scraped(spec: Delivery) -> Sequence[Scraped]:
    """What each region's Prometheus says; nothing of the fleet on this machine, whose Prometheus is our own."""
    fleet = spec.fleet
    if not isinstance(fleet, ArgoFleetSpec):
        return ()
    # Not above: a plan for this machine asks nobody.
    from pipelines.scraped import scraped
    from rollouts.adapters.http import Http
    from rollouts.adapters.prometheus_query import PrometheusQuery

    async def ask() -> Sequence[Scraped]:
        async with Http() as http:
            return await scraped(
                spec, {name: PrometheusQuery(there.prometheus.url, http) for name, there in fleet.regions.items()}
            )

    return asyncio.run(ask())


def _print_json(
    plan: Plan, spec: Delivery, seen: Sequence[Scraped], strangers: Mapping[str, Sequence[Stranger]]
) -> None:
    steps = [step.model_dump(mode="json") | {"id": step.id} for step in plan.steps]
    engines = [each.model_dump(mode="json") for each in engine_counts(spec)]
    told = {"steps": steps, "expected_seconds": plan.expected_seconds, "engines": engines}
    told |= {"scraped": [each.as_data() for each in seen]} if seen else {}
    named = {region: [each.model_dump(mode="json") for each in others] for region, others in strangers.items()}
    told |= {"strangers": named} if named else {}
    print_json(plan.model_dump(mode="json") | told)


def _held(count: EngineCount) -> str:
    cost = f", {count.per_hour:,.2f} {count.currency} an hour" if count.per_hour is not None else ""
    warm = f"; up to {count.warm} more are kept warm after promotions" if count.warm else ""
    return (
        f"{count.region}: {count.serving} engines serve, {count.first} more come without users, "
        f"{count.most} at most{cost}{warm}"
    )


def print_plan(plan: Plan) -> None:
    """The plan as a table on stdout."""
    from rich.table import Table

    from tidegate.cli.console import PlainConsole

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in PLAN_COLUMNS:
        table.add_column(column, no_wrap=True)
    for row in plan_rows(plan):
        table.add_row(*row)
    console = PlainConsole(file=sys.stdout, width=None if sys.stdout.isatty() else 150)
    head = f"{plan.version.uri} -> {', '.join(plan.regions)}; champion is version {plan.champion.version}"
    console.print(head, soft_wrap=True)
    console.print(table)
    for line in approvals(plan):
        console.print(line, soft_wrap=True)
    console.print(whole_time(plan))
    for line in plan_notes(plan):
        console.print(line, soft_wrap=True, style="dim")
