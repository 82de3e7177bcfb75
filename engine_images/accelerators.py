"""What an engine computes on, and how much memory each has.

Memory is what the driver reports for a whole device (`nvidia-smi`, `rocm-smi`), which is less than the
number in the product's name suggests when that is read as GiB and more when it is read as GB.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.core.model import Value

MEBIBYTE = 1024 * 1024
GIBIBYTE = 1024 * MEBIBYTE


class Accelerator(StrEnum):
    """What an engine computes on."""

    CPU = "cpu"
    """The one that the pinned engine environment is built for, and the only one of the local fleet."""
    T4 = "nvidia-t4"
    L4 = "nvidia-l4"
    A10G = "nvidia-a10g"
    L40S = "nvidia-l40s"
    A100_40 = "nvidia-a100-40gb"
    A100_80 = "nvidia-a100-80gb"
    H100 = "nvidia-h100-80gb"
    H200 = "nvidia-h200-141gb"
    B200 = "nvidia-b200"
    MI300X = "amd-mi300x"


class Device(Value):
    """One accelerator as an engine sees it."""

    memory_bytes: int | None
    """None for a CPU: what the machine has."""
    bfloat16: bool = True
    fp8: bool = True
    """Multiplies in 8 bits; without it vLLM can keep weights in 8 bits but computes in 16."""
    source: str
    """Where the numbers come from."""


_SMI = "memory.total of nvidia-smi; precision: NVIDIA's data sheet of the {} architecture"

DEVICES = {
    Accelerator.CPU: Device(memory_bytes=None, fp8=False, source="vLLM's platforms/cpu.py: no fp8 kernels"),
    Accelerator.T4: Device(
        memory_bytes=15_360 * MEBIBYTE, bfloat16=False, fp8=False, source=_SMI.format("Turing (compute 7.5)")
    ),
    Accelerator.L4: Device(memory_bytes=23_034 * MEBIBYTE, source=_SMI.format("Ada (compute 8.9)")),
    Accelerator.A10G: Device(memory_bytes=23_028 * MEBIBYTE, fp8=False, source=_SMI.format("Ampere (compute 8.6)")),
    Accelerator.L40S: Device(memory_bytes=46_068 * MEBIBYTE, source=_SMI.format("Ada (compute 8.9)")),
    Accelerator.A100_40: Device(memory_bytes=40_960 * MEBIBYTE, fp8=False, source=_SMI.format("Ampere (compute 8.0)")),
    Accelerator.A100_80: Device(memory_bytes=81_920 * MEBIBYTE, fp8=False, source=_SMI.format("Ampere (compute 8.0)")),
    Accelerator.H100: Device(memory_bytes=81_559 * MEBIBYTE, source=_SMI.format("Hopper (compute 9.0)")),
    Accelerator.H200: Device(memory_bytes=143_771 * MEBIBYTE, source=_SMI.format("Hopper (compute 9.0)")),
    Accelerator.B200: Device(memory_bytes=183_359 * MEBIBYTE, source=_SMI.format("Blackwell (compute 10.0)")),
    Accelerator.MI300X: Device(
        memory_bytes=196_592 * MEBIBYTE, source="VRAM total of rocm-smi; precision: AMD's data sheet of CDNA 3"
    ),
}
