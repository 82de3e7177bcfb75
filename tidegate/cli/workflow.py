"""`tidegate workflow`: deliveries as Argo Workflows."""

from __future__ import annotations

import asyncio
from typing import Annotated

from typer import Option, Typer

from tidegate.cli.options import SPEC, Spec, opened_registry
from tidegate.cli.settings import Output, given, prints
from tidegate.core.errors import ExitCode

workflow = Typer(name="workflow", help="Deliveries as Argo Workflows.")


@workflow.command("submit")
@prints(Output.JSON, Output.YAML)
def submit(
    version: Annotated[str, Option(metavar="NUMBER", help="Number of the model version.", show_default=False)],
    spec: Spec = SPEC,
    delivery: Annotated[str, Option(metavar="ID", help="Continue this delivery, whose workflow was lost.")] = "",
    apply: Annotated[bool, Option("--apply", help="First apply what `rollout render --as workflow` prints.")] = False,
) -> int:
    """Start a delivery in the cluster by its WorkflowTemplate, and print the workflow's name.

    Returns at once; the cluster runs one workflow of a model at a time. `argo watch NAME` and `tidegate status` follow
    it. With a tracking URI, a version whose files lie on the disk of one machine is refused.

    \b
    Examples:
      tidegate workflow submit delivery.yaml --version 7 --apply
      tidegate workflow submit delivery.yaml --version 7 --delivery 0f3c41d28a1b4c7e9d5f6a7b8c9d0e1f
    """
    from pipelines.adapters.fleets import cluster_client
    from pipelines.adapters.specs import read_delivery
    from pipelines.workflow import model
    from pipelines.workflow.render import blueprint_of, rendered
    from tidegate.planning import require_files_for_pods

    model.require_number(version)
    blueprint = blueprint_of(read_delivery(spec), spec)
    if given().tracking_uri:
        require_files_for_pods(blueprint.spec, version, opened_registry())

    async def send() -> str:
        async with cluster_client(given().context, blueprint.namespace) as cluster:
            return await model.submit(cluster, blueprint, version, delivery, rendered(blueprint) if apply else ())

    name = asyncio.run(send())
    given().show({"workflow": name, "namespace": blueprint.namespace}, name)
    return ExitCode.DELIVERED
