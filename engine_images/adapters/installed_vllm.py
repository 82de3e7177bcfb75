"""Asks the installed vLLM what it accepts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from engine_images.errors import EnvironmentMissing
from engine_images.model import EngineEnvironment

DESCRIBE = Path(__file__).parent.parent / "environment" / "describe_vllm.py"


def describe_installed(environment: EngineEnvironment) -> str:
    """The text of the file that `pinned` keeps, as the vLLM in `environment` would have it; about 15 seconds.

    Raises:
        EnvironmentMissing: vLLM cannot be asked; `detail` has what it said.
    """
    done = subprocess.run([environment.python, str(DESCRIBE)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentMissing(f"{environment.python} cannot describe its vLLM", detail=done.stderr)
    return done.stdout
