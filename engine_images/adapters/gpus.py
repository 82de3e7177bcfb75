"""The GPUs of this machine, as their drivers' own tools name them."""

from __future__ import annotations

import re
import shutil
import subprocess

from engine_images.accelerators import Accelerator, unseen
from engine_images.choices import EnginePlatform
from engine_images.errors import EnvironmentMissing
from tidegate.core.adapters import nvidia_smi

ROCM_TOOL = "rocm-smi"
_CARD = re.compile(r"card series:\s*(.+)", re.IGNORECASE)

TO_BUILD = "build where the accelerator is, or set engine.compile.mode to none: then nothing is compiled"
TO_SERVE = "deliver where the accelerator is, or set engine.accelerator to cpu"


def require_accelerator(accelerator: Accelerator, count: int, *, hint: str = TO_BUILD) -> None:
    """Return when this machine has as many of them; `hint` says what else could be done.

    Raises:
        EnvironmentMissing: it has none, others, or fewer.
    """
    if accelerator is Accelerator.CPU:
        return
    on_cuda = accelerator.platform is EnginePlatform.CUDA
    names = tuple(name for (name,) in nvidia_smi.gpu_table("name")) if on_cuda else _names_of_rocm()
    problem = unseen(accelerator, count, names)
    if problem:
        raise EnvironmentMissing(f"{problem} ({nvidia_smi.TOOL if on_cuda else ROCM_TOOL})", hint=hint)


def _names_of_rocm() -> tuple[str, ...]:
    """One name for each GPU; none where the driver's tool is missing or fails."""
    if shutil.which(ROCM_TOOL) is None:
        return ()
    command = [ROCM_TOOL, "--showproductname"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=nvidia_smi.SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(name.strip() for name in _CARD.findall(done.stdout))
