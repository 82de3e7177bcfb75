"""`tidegate stage`: a delivery step by step, each step a process."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.cli.durations import Duration, duration
from tidegate.cli.options import SPEC, STATE, As, Output, ProofOptions, SpecFile, State, Tracking, TrustFile, spread

if TYPE_CHECKING:
    from tidegate.app.wiring.running import DeliveryDisplay


STEP = "step"


class StagesByName(TyperGroup):
    """`tidegate stage canary@eu-west-1/25` is `tidegate stage step canary@eu-west-1/25`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command of ours is a step's id."""
        known = not args or args[0].startswith("-") or args[0] in self.commands
        return super().resolve_command(ctx, args if known else [STEP, *args])


stage = typer.Typer(
    name="stage", help="A delivery step by step, each step a process of its own, as in a workflow.", cls=StagesByName
)


Delivery = Annotated[
    str, typer.Option("--delivery", envvar="TIDEGATE_DELIVERY", help="The delivery's id, as `stage open` printed it.")
]


@stage.command("open")
@spread
def stage_open(
    *,
    spec: SpecFile = SPEC,
    version: Annotated[
        str | None, typer.Option(help="The number of the version to deliver; default: the alias `model.from`.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Such as the workflow's uid: opening again with the same key finds the same delivery."),
    ] = None,
    delivery: Annotated[
        str | None, typer.Option(help="Carry on this delivery, which nobody carries any more, instead of a new one.")
    ] = None,
    patience: Annotated[
        Duration,
        typer.Option(
            parser=duration, help="How long the next step may take to start before the delivery counts as dead."
        ),
    ] = Duration(minutes=15),
    by: Annotated[
        str | None, typer.Option(help="With --delivery: who carries it on, where the spec says that a name is enough.")
    ] = None,
    proof: ProofOptions,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Open the ledger of a delivery, keep the spec and what it names next to it, and print the delivery's id.

    Changes no region and no alias. Refused with 2 while another delivery of the model runs.

    \b
    Examples:
      tidegate stage open -f delivery.yaml --version 7
      tidegate stage open -f delivery.yaml --key "$WORKFLOW_UID" --output json
    """
    from pipelines.spec.trust import trust_at
    from tidegate.app.stages import StageOpenOptions, open_stages
    from tidegate.app.wiring.attached import ResumeCredentials
    from tidegate.cli.credentials import prover_of
    from tidegate.cli.output import print_json

    trusted = trust_at(trust, Path() if delivery else spec.parent)
    options = StageOpenOptions(
        spec=spec,
        state=state,
        credentials=ResumeCredentials(by, prover_of(proof), trusted),
        tracking_uri=tracking_uri,
        version=version,
        key=key,
        delivery=delivery,
        patience=patience,
    )
    opened = open_stages(options)
    if output is Output.JSON:
        steps = [step.model_dump(mode="json", exclude={"gates"}) | {"id": step.id} for step in opened.plan.steps]
        print_json({"delivery": opened.delivery, "version": opened.plan.version.version, "steps": steps})
    else:
        print(opened.delivery)
    return 0


@stage.command(STEP)
def stage_step(
    step: Annotated[
        str, typer.Argument(help="A step's id, such as canary@eu-west-1/25; or a stage's name with the options below.")
    ],
    delivery: Delivery,
    region: Annotated[str | None, typer.Option(help="Where.")] = None,
    weight: Annotated[int | None, typer.Option(help="Percent of users, for canary.")] = None,
    wave: Annotated[int | None, typer.Option(help="Which wave, for bake.")] = None,
    key: Annotated[
        str | None, typer.Option(help="That of `stage open`: refused once somebody with another carries it on.")
    ] = None,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Do one step of a delivery that `stage open` opened, as `deliver` does it.

    Moves that step's region. One that is done already is not done again and exits with 0; one that was cut
    short is repeated. A verdict takes the step's region back at once; `stage close` sees to all of them.
    `tidegate stage STEP` says the same.

    \b
    Examples:
      tidegate stage step canary@eu-west-1/25 --delivery ID
      tidegate stage step canary --region eu-west-1 --weight 25 --delivery ID
      tidegate stage step canary@eu-west-1/25 --delivery ID --key "$WORKFLOW_UID"
    """
    from pipelines.spec.trust import trust_at
    from tidegate.app.process import note
    from tidegate.app.stages import StageStepOptions, run_stage, step_id
    from tidegate.cli.output import print_json

    # What was kept in MLflow is believed by nobody's word: the trust file lies here, not next to the kept spec.
    options = StageStepOptions(
        step=step_id(step, region=region, weight=weight, wave=wave),
        delivery=delivery,
        state=state,
        trusted=trust_at(trust, Path()),
        tracking_uri=tracking_uri,
        key=key,
    )
    result = run_stage(options, _display())
    if output is Output.JSON:
        print_json(result.model_dump(mode="json"))
    else:
        note(f"{result.step}: {result.reason}")
    return int(result.exit_code)


@stage.command("close")
def stage_close(
    delivery: Annotated[
        str | None, typer.Option(envvar="TIDEGATE_DELIVERY", help="The delivery's id, as `stage open` printed it.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Instead of the id: the key with which `stage open` opened, if it came so far.")
    ] = None,
    spec: Annotated[Path, typer.Option("-f", "--file", help="With --key: the delivery's spec.")] = SPEC,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """End a delivery: delivered when every step is done, else take every region back. For exit handlers.

    Writes the report, and exits as `deliver` would have. Run again, it changes nothing and exits the same.
    With a key that opened nothing it exits with 0.

    \b
    Examples:
      tidegate stage close --delivery ID
      tidegate stage close -f delivery.yaml --key "$WORKFLOW_UID"
    """
    from pipelines.spec.trust import trust_at
    from tidegate.app.process import note
    from tidegate.app.stages import StageCloseOptions, close_stages
    from tidegate.cli.output import print_json, say

    options = StageCloseOptions(
        state=state, trusted=trust_at(trust, Path()), tracking_uri=tracking_uri, delivery=delivery, key=key, spec=spec
    )
    result = close_stages(options, _display())
    if result is None:
        note(f"nothing to close: no delivery was opened with the key {key}")
        return 0
    if output is Output.JSON:
        print_json(result.model_dump(mode="json"))
    else:
        say(f"{result.ending}: {result.reason}")
    return int(result.exit_code)


def _display() -> DeliveryDisplay:
    from tidegate.cli.views.console import PlainConsole
    from tidegate.cli.views.delivery import follow
    from tidegate.core.clock import SystemClock

    return follow(PlainConsole(stderr=True), SystemClock())
