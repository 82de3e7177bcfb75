"""The GPUs of this machine, as their drivers' own tools name them."""

from __future__ import annotations

import re
import shutil
import subprocess

from engine_images.accelerators import Accelerator, unseen
from engine_images.choices import EnginePlatform
from engine_images.errors import EnvironmentMissing

SECONDS = 20.0
_TOOLS = {
    EnginePlatform.CUDA: ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
    EnginePlatform.ROCM: ("rocm-smi", "--showproductname"),
}
_CARD = re.compile(r"card series:\s*(.+)", re.IGNORECASE)


def require_accelerator(accelerator: Accelerator, count: int) -> None:
    """Return when this machine has as many of them.

    Raises:
        EnvironmentMissing: it has none, others, or fewer.
    """
    if accelerator is Accelerator.CPU:
        return
    tool = _TOOLS[accelerator.platform]
    problem = unseen(accelerator, count, _names(tool))
    if problem:
        raise EnvironmentMissing(
            f"{problem} ({tool[0]})",
            hint="build where the accelerator is, or set engine.compile.mode to none: then nothing is compiled",
        )


def _names(tool: tuple[str, ...]) -> tuple[str, ...]:
    """One name for each GPU; none where the driver's tool is missing or fails."""
    if shutil.which(tool[0]) is None:
        return ()
    try:
        done = subprocess.run(tool, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return tuple(lines) if tool[0] == "nvidia-smi" else tuple(name.strip() for name in _CARD.findall(done.stdout))
