"""`tidegate setup`: brings everything that a delivery on this machine needs besides tidegate itself."""

from __future__ import annotations

from collections.abc import Callable

import typer

from engine_images.adapters.environment import engine_home, ensure_engine_environment, ensure_system_packages
from tidegate.core.errors import ExitCode


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)


def run_setup(progress: Callable[[str], None] = _to_stderr) -> ExitCode:
    """Bring Prometheus, a compiler and the engine environment; what is there already is left alone.

    `progress` gets one line before each long step and one at the end.

    Raises:
        TidegateError: something is missing and cannot be brought from here; the hint says what to do.
    """
    ensure_system_packages(progress)
    environment = ensure_engine_environment(progress)
    progress(f"ready: vLLM {environment.vllm} at {engine_home()}")
    return ExitCode.DELIVERED
