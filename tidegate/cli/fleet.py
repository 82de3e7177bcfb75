"""`tidegate fleet` and `setup`: what runs on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from typer import Option, Typer

from engine_images.choices import EnginePlatform
from tidegate.cli.options import SPEC, Spec
from tidegate.cli.settings import given, say
from tidegate.core.errors import ExitCode, UsageError

fleet = Typer(name="fleet", help="Engines, proxies and Prometheus on this machine.")


@fleet.command("up")
def up(
    spec: Spec = SPEC,
    detach: Annotated[bool, Option("--detach", help="Return once all regions serve.")] = False,
    users: Annotated[bool, Option("--users", help="Generate the load that `traffic` in the spec describes.")] = False,
) -> int:
    """Start the fleet and serve the champion in all regions until Ctrl-C.

    With --users, users of a fleet that runs already are generated, also during deliveries. They leave one record per
    request (times and counts, never prompts); how many failed is printed at the end.

    \b
    Examples:
      tidegate fleet up delivery.yaml --detach
      tidegate fleet up delivery.yaml --users
    """
    from pipelines.adapters.specs import read_delivery
    from pipelines.adapters.this_machine import serve_champion
    from pipelines.state import StateFolder

    if detach and users:
        raise UsageError("--users with --detach: users end with this command", hint="leave one of them out")
    read, state, uri = read_delivery(spec), StateFolder(given().state), given().tracking_uri
    totals = asyncio.run(serve_champion(read, spec.parent, state, uri, say, detach=detach, users=users))
    if totals:
        say(f"{totals.failed} of {totals.requests} requests failed, {totals.cut} were cut")
    return ExitCode.DELIVERED


@fleet.command("down")
def down() -> int:
    """Drain and stop the fleet on this machine.

    \b
    Examples:
      tidegate fleet down
    """
    from pipelines.adapters.fleets import stop_host

    say("stopped" if asyncio.run(stop_host(given().state)) else "no fleet runs here")
    return ExitCode.DELIVERED


def setup(
    wheels: Annotated[
        Path | None, Option(metavar="FOLDER", help="Make the engine environment of these wheels, offline.")
    ] = None,
    platform: Annotated[
        EnginePlatform, Option(help="What engines compute with: vLLM's build for it.")
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
    return ExitCode.DELIVERED
