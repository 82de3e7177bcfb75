"""`tidegate fleet`, `traffic`, `setup`: what runs on this machine."""

# click wants the backspace that keeps examples unwrapped, and a command has as many options as it has.
# ruff: noqa: D301

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine_images.choices import EnginePlatform
from tidegate.cli.global_options import given
from tidegate.cli.options import SPEC, Spec

fleet = typer.Typer(name="fleet", help="Engines, proxies and Prometheus on this machine.")


@fleet.command("up")
def fleet_up(
    spec: Spec = SPEC,
    detach: Annotated[bool, typer.Option("--detach", help="Return once all regions serve.")] = False,
) -> int:
    """Start the fleet and serve the champion in all regions until Ctrl-C.

    \b
    Examples:
      tidegate fleet up delivery.yaml --detach
    """
    from tidegate.app.fleet import FleetOptions, serve_fleet
    from tidegate.cli.output import say

    serve_fleet(FleetOptions(spec, given().state, given().tracking_uri, detach=detach), say)
    return 0


@fleet.command("down")
def fleet_down() -> int:
    """Drain and stop the fleet on this machine.

    \b
    Examples:
      tidegate fleet down
    """
    from tidegate.app.fleet import stop_fleet

    print("stopped" if stop_fleet(given().state) else "no fleet runs here")
    return 0


def traffic(
    spec: Spec = SPEC,
    seconds: Annotated[float | None, typer.Option(min=1, help="Stop after this long; default: on Ctrl-C.")] = None,
) -> int:
    """Generate the load that `traffic` in the spec describes.

    Writes one record per request (times and counts, never prompts); prints at the end how many failed.

    \b
    Examples:
      tidegate traffic delivery.yaml --seconds 60
    """
    from tidegate.app.fleet import play_traffic

    totals = play_traffic(spec, given().state, seconds=seconds)
    print(f"{totals.failed} of {totals.requests} requests failed, {totals.cut} were cut")
    return 0


def setup(
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", metavar="FOLDER", help="Make the engine environment of these wheels, offline."),
    ] = None,
    platform: Annotated[
        EnginePlatform, typer.Option("--platform", help="What engines compute with: vLLM's build for it.")
    ] = EnginePlatform.CPU,
) -> int:
    """Install what the sandbox needs: Prometheus, a compiler, vLLM.

    Installs packages as root, or prints what to run and goes on; creates the engine environment at its fixed path
    (TIDEGATE_ENGINE_HOME, default /opt/tidegate/engine), or checks the versions of the one whose Python
    TIDEGATE_ENGINE_PYTHON names. Does nothing when all is there.

    \b
    Examples:
      tidegate setup
      tidegate setup --platform cuda
      tidegate setup --wheels ./wheels
    """
    from pipelines.adapters.engines import set_up_machine

    set_up_machine(wheels, platform)
    return 0
