"""Names, options and help of `tidegate stage`: a delivery step by step, each step a process."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301, PLR0917

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidegate.cli.options import SPEC, STATE, As, Output, SshKey, State, TokenCommand, TokenFile, Tracking, TrustFile

STEP = "step"


class StagesByName(TyperGroup):
    """`tidegate stage canary@eu-west-1/25` is `tidegate stage step canary@eu-west-1/25`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is no command of ours is a step's id."""
        known = not args or args[0].startswith("-") or args[0] in self.commands
        return super().resolve_command(ctx, args if known else [STEP, *args])


stage = typer.Typer(help="A delivery step by step, each step a process of its own, as in a workflow.", cls=StagesByName)

Delivery = Annotated[
    str, typer.Option("--delivery", envvar="TIDEGATE_DELIVERY", help="The delivery's id, as `stage open` printed it.")
]


@stage.command("open")
def stage_open(
    spec: Annotated[Path, typer.Option("-f", "--file", help="The delivery's spec.")] = SPEC,
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
        str, typer.Option(help="How long the next step may take to start before the delivery counts as dead.")
    ] = "15m",
    by: Annotated[
        str | None, typer.Option(help="With --delivery: who carries it on, where the spec says that a name is enough.")
    ] = None,
    ssh_key: SshKey = None,
    token_file: TokenFile = None,
    token_command: TokenCommand = None,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Open the ledger of a delivery, keep the spec and what it names beside it, and print the delivery's id.

    Changes no region and no alias. Refused with 2 while another delivery of the model runs.

    \b
    Examples:
      tidegate stage open -f delivery.yaml --version 7
      tidegate stage open -f delivery.yaml --key "$WORKFLOW_UID" --output json
    """
    from pipelines.trust import trust_at
    from tidegate.cli.commands.stage_open import Opening, run
    from tidegate.cli.heir import Heir
    from tidegate.cli.prover import Means

    heir = Heir(by, Means(ssh_key, token_file, token_command), trust_at(trust, Path() if delivery else spec.parent))
    opening = Opening(spec=spec, version=version, key=key, delivery=delivery, patience=patience, heir=heir)
    return run(opening, state, tracking_uri, as_json=output is Output.JSON)


@stage.command(STEP)
def stage_step(
    step: Annotated[
        str, typer.Argument(help="A step's id, such as canary@eu-west-1/25; or a stage's name with the options below.")
    ],
    delivery: Delivery,
    region: Annotated[str | None, typer.Option(help="Where.")] = None,
    weight: Annotated[int | None, typer.Option(help="Percent of users, for canary.")] = None,
    wave: Annotated[int | None, typer.Option(help="Which wave, for bake.")] = None,
    trust: TrustFile = None,
    state: State = STATE,
    tracking_uri: Tracking = None,
    output: As = Output.TEXT,
) -> int:
    """Do one step of a delivery that `stage open` opened, as `deliver` does it.

    Moves that step's region. One that is done already is not done again and exits with 0; one that was cut
    short is said again. A verdict takes the step's region back at once; `stage close` sees to all of them.
    `tidegate stage STEP` says the same.

    \b
    Examples:
      tidegate stage step canary@eu-west-1/25 --delivery ID
      tidegate stage step canary --region eu-west-1 --weight 25 --delivery ID
    """
    from pipelines.trust import trust_at
    from tidegate.cli.commands.stage_step import run, step_id

    wanted = step_id(step, region=region, weight=weight, wave=wave)
    # What was kept in MLflow is believed by nobody's word: the trust file lies here, not beside the kept spec.
    return run(wanted, delivery, state, tracking_uri, trust_at(trust, Path()), as_json=output is Output.JSON)


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

    Writes the report, and exits as `deliver` would have. Said again it changes nothing and exits the same.
    With a key that opened nothing it exits with 0.

    \b
    Examples:
      tidegate stage close --delivery ID
      tidegate stage close -f delivery.yaml --key "$WORKFLOW_UID"
    """
    from pipelines.trust import trust_at
    from tidegate.cli.commands.stage_close import Closing, run

    return run(
        Closing(delivery, key, spec), state, tracking_uri, trust_at(trust, Path()), as_json=output is Output.JSON
    )
