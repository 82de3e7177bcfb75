"""The GPUs of this machine, as their driver's own tool names them."""

from __future__ import annotations

from engine_images.accelerators import Accelerator, unseen
from engine_images.errors import EnvironmentMissing
from tidegate.core.adapters import nvidia_smi

TO_BUILD = "build where the accelerator is, or set engine.compile.mode to none: then nothing is compiled"
TO_SERVE = "deliver where the accelerator is, or set engine.accelerator to cpu"


def require_accelerator(accelerator: Accelerator, count: int, *, hint: str = TO_BUILD) -> None:
    """Return when this machine has as many of them; `hint` says what else could be done.

    Raises:
        EnvironmentMissing: it has none, others, or fewer.
    """
    if accelerator is Accelerator.CPU:
        return
    problem = unseen(accelerator, count, [name for (name,) in nvidia_smi.gpu_table("name")])
    if problem:
        raise EnvironmentMissing(f"{problem} ({nvidia_smi.TOOL})", hint=hint)
