"""The GPUs of this machine, as their driver's own tool names them."""

from __future__ import annotations

import os
import shutil
import subprocess

from engine_images.accelerators import Accelerator, unseen
from engine_images.errors import EnvironmentMissing

TOOL = "nvidia-smi"
"""Of NVIDIA's driver."""
SECONDS = 20.0
"""For an answer: without the driver's persistence mode each GPU is woken up first."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The operator's word on which GPUs processes may use, by index or UUID; the tool itself does not keep to it."""
TO_BUILD = "build where the accelerator is, or set engine.compile.mode to none: then nothing is compiled"
TO_SERVE = "deliver where the accelerator is, or set engine.accelerator to cpu"


def require_accelerator(accelerator: Accelerator, count: int, *, hint: str = TO_BUILD) -> None:
    """Return when this machine has as many of them; `hint` says what else could be done.

    Raises:
        EnvironmentMissing: it has none, others, or fewer.
    """
    if accelerator is Accelerator.CPU:
        return
    problem = unseen(accelerator, count, [name for (name,) in gpu_table("name")])
    if problem:
        raise EnvironmentMissing(f"{problem} ({TOOL})", hint=hint)


def gpu_table(*fields: str) -> tuple[tuple[str, ...], ...]:
    """One row for each GPU that may be used: these fields of `nvidia-smi --help-query-gpu`, numbers without units.

    Empty where the tool is missing or fails, and where the operator lets no GPU be used.
    """
    visible = os.environ.get(VISIBLE)
    if shutil.which(TOOL) is None or visible == "":
        return ()
    command = [TOOL, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    command += ["-i", visible] if visible else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = (tuple(cell.strip() for cell in line.split(",")) for line in done.stdout.splitlines() if line.strip())
    return tuple(row for row in rows if len(row) == len(fields))
