"""What NVIDIA's DCGM exporter says of a GPU, as far as anybody here asks.

`role` and `version` are those of the pod that the GPU is given to; who scrapes the exporter joins them.
"""

from __future__ import annotations

from slo.metrics.model import TARGET, Kind, Metric

_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", *TARGET)


def _of_gpu(name: str, kind: Kind = Kind.GAUGE) -> Metric:
    return Metric(name=f"DCGM_FI_{name}", kind=kind, labels=_LABELS, only_with="a GPU")


GPU_UTILISATION = _of_gpu("DEV_GPU_UTIL")
"""Percent of the time in which any kernel ran, 0 to 100."""
MEMORY_USED = _of_gpu("DEV_FB_USED")
"""MiB."""
MEMORY_FREE = _of_gpu("DEV_FB_FREE")
"""MiB."""
POWER = _of_gpu("DEV_POWER_USAGE")
"""Watts."""
ENERGY = _of_gpu("DEV_TOTAL_ENERGY_CONSUMPTION", Kind.COUNTER)
"""Millijoules since the driver was loaded."""

DCGM = (
    GPU_UTILISATION,
    MEMORY_USED,
    MEMORY_FREE,
    POWER,
    ENERGY,
    _of_gpu("DEV_MEM_COPY_UTIL"),
    _of_gpu("DEV_GPU_TEMP"),
    _of_gpu("DEV_XID_ERRORS"),
    _of_gpu("PROF_GR_ENGINE_ACTIVE"),
    _of_gpu("PROF_PIPE_TENSOR_ACTIVE"),
    _of_gpu("PROF_DRAM_ACTIVE"),
)
