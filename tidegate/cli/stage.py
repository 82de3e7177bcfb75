"""`tidegate stage`: a delivery step by step, each step a process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from tidegate.cli.command import Group
from tidegate.cli.options import (
    SPEC,
    Duration,
    Identity,
    Spec,
    VersionNumber,
    delivery_display,
    duration,
    surroundings,
)
from tidegate.cli.settings import Output, given, print_data, prints

STEP = "step"


class StagesByName(Group):
    """`tidegate stage canary@eu-west-1/25` is `tidegate stage step canary@eu-west-1/25`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command of ours is a step's id."""
        known = not args or args[0].startswith("-") or args[0] in self.commands
        return super().resolve_command(ctx, args if known else [STEP, *args])


stage = Typer(name="stage", help="A delivery step by step, each step a process, as in a workflow.", cls=StagesByName)
ID_HELP = "Id of the delivery, as `stage open` prints it."


@stage.command("open")
@prints(Output.JSON, Output.YAML)
def stage_open(
    *,
    spec: Spec = SPEC,
    version: VersionNumber = None,
    key: Annotated[
        str | None, Option(help="A key such as the workflow's uid: the same key opens the same delivery.")
    ] = None,
    patience: Annotated[
        Duration,
        Option(parser=duration, help="Time until the next step must start; after it the delivery counts as dead."),
    ] = Duration(minutes=15),
    identity: Identity = None,
) -> int:
    """Open a delivery: keep the spec and the files it names in its ledger, and print its id.

    Changes no region and no alias. Refused (exit 2) while another delivery of the model runs.

    \b
    Examples:
      tidegate stage open delivery.yaml --version 7
      tidegate stage open delivery.yaml --key "$WORKFLOW_UID" --output json
    """
    from tidegate.cli.credentials import prover_of
    from tidegate.steps import open_steps

    opened, plan = open_steps(
        surroundings(spec.parent),
        spec,
        prover=prover_of(identity),
        version=version,
        key=key,
        patience=patience,
    )
    steps = [step.model_dump(mode="json", exclude={"gates"}) | {"id": step.id} for step in plan.steps]
    given().show({"delivery": opened, "version": plan.version.version, "steps": steps}, opened)
    return 0


@stage.command(STEP)
@prints(Output.JSON, Output.YAML)
def stage_step(
    step: Annotated[str, Argument(help="A step's id, such as canary@eu-west-1/25.")],
    delivery: Annotated[str, Option(envvar="TIDEGATE_DELIVERY", help=ID_HELP)],
    key: Annotated[
        str | None,
        Option(help="The key of `stage open`: refused once a process with another key carries the delivery."),
    ] = None,
) -> int:
    """Run one step of a delivery that `stage open` opened.

    Moves the region of that step. A step that is done exits with 0 at once; one that was cut short is repeated.
    A failed gate rolls back the step's region at once; `stage close` rolls back the others.
    `tidegate stage STEP` is the same.

    \b
    Examples:
      tidegate stage step canary@eu-west-1/25 --delivery ID
      tidegate stage step canary@eu-west-1/25 --delivery ID --key "$WORKFLOW_UID"
    """
    from tidegate.steps import run_one_step

    result = run_one_step(surroundings(), delivery, step, delivery_display(), key=key)
    if given().output.is_data:
        print_data(result.model_dump(mode="json"), given().output)
    else:
        given().note(f"{result.step}: {result.reason}")
    return int(result.exit_code)


@stage.command("close")
@prints(Output.JSON, Output.YAML)
def stage_close(
    delivery: Annotated[str | None, Option(envvar="TIDEGATE_DELIVERY", help=ID_HELP)] = None,
    key: Annotated[str | None, Option(help="In place of the id: the key that `stage open` was given.")] = None,
    spec: Annotated[Path, Argument(help="With --key: the delivery's spec.")] = SPEC,
) -> int:
    """End a delivery: delivered when all steps are done, else rolled back. For exit handlers.

    Writes the report, and exits as `deliver` does. Idempotent. Exits with 0 when the key opened nothing.

    \b
    Examples:
      tidegate stage close --delivery ID
      tidegate stage close delivery.yaml --key "$WORKFLOW_UID"
    """
    from tidegate.steps import close_steps

    result = close_steps(surroundings(), spec, delivery_display(), delivery=delivery, key=key)
    if result is None:
        given().note(f"nothing to close: no delivery was opened with the key {key}")
        return 0
    given().show(result.model_dump(mode="json"), f"{result.ending}: {result.reason}")
    return int(result.exit_code)
