"""What an engine computes on, and how much memory each has.

Memory is what the driver reports for a whole device (`nvidia-smi`), which is less than the number in the product's name
suggests when that is read as GiB and more when it is read as GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from engine_images.choices import EnginePlatform
from tidegate.core.model import Value

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE


class Accelerator(StrEnum):
    """What an engine computes on."""

    CPU = "cpu"
    T4 = "nvidia-t4"
    L4 = "nvidia-l4"
    A10G = "nvidia-a10g"
    L40S = "nvidia-l40s"
    A100_40 = "nvidia-a100-40gb"
    A100_80 = "nvidia-a100-80gb"
    H100 = "nvidia-h100-80gb"
    H200 = "nvidia-h200-141gb"
    B200 = "nvidia-b200"

    @property
    def platform(self) -> EnginePlatform:
        """Which build of vLLM runs on it."""
        return EnginePlatform.CPU if self is Accelerator.CPU else EnginePlatform.CUDA


class Device(Value):
    """One accelerator as an engine sees it."""

    memory_bytes: int | None
    """None for a CPU: what the machine has."""
    bfloat16: bool = True
    fp8: bool = True
    """Multiplies in 8 bits; without it vLLM can keep weights in 8 bits but computes in 16."""
    names: tuple[str, ...] = ()
    """As the driver's own tool calls it, by which a machine that has it is told."""
    source: str
    """Where the numbers come from."""


def _nvidia(mebibytes: int, generation: str, *names: str, bfloat16: bool = True, fp8: bool = True) -> Device:
    source = f"memory.total of nvidia-smi; precision: NVIDIA's data sheet of the {generation} architecture"
    return Device(memory_bytes=mebibytes * MEBIBYTE, bfloat16=bfloat16, fp8=fp8, names=names, source=source)


_TURING, _AMPERE, _ADA = "Turing (compute 7.5)", "Ampere (compute 8.0)", "Ada (compute 8.9)"
_HOPPER, _BLACKWELL = "Hopper (compute 9.0)", "Blackwell (compute 10.0)"

DEVICES = {
    Accelerator.CPU: Device(memory_bytes=None, fp8=False, source="vLLM's platforms/cpu.py: no fp8 kernels"),
    Accelerator.T4: _nvidia(15_360, _TURING, "Tesla T4", bfloat16=False, fp8=False),
    Accelerator.L4: _nvidia(23_034, _ADA, "NVIDIA L4"),
    Accelerator.A10G: _nvidia(23_028, "Ampere (compute 8.6)", "NVIDIA A10G", fp8=False),
    Accelerator.L40S: _nvidia(46_068, _ADA, "NVIDIA L40S"),
    Accelerator.A100_40: _nvidia(40_960, _AMPERE, "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", fp8=False),
    Accelerator.A100_80: _nvidia(81_920, _AMPERE, "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", fp8=False),
    Accelerator.H100: _nvidia(81_559, _HOPPER, "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
    Accelerator.H200: _nvidia(143_771, _HOPPER, "NVIDIA H200"),
    Accelerator.B200: _nvidia(183_359, _BLACKWELL, "NVIDIA B200"),
}


def unseen(accelerator: Accelerator, count: int, seen: Sequence[str]) -> str | None:
    """Why a machine whose driver names the GPUs in `seen` cannot run an engine on `count` of these, if it cannot."""
    names = DEVICES[accelerator].names
    found = [name for name in seen if name in names]
    if not names or len(found) >= count:
        return None
    others = sorted(set(seen) - set(found))
    here = f"{len(found)} of them" if found else ", ".join(others) or "no GPU"
    return f"the engine is for {count} of {accelerator}; this machine has {here}"
