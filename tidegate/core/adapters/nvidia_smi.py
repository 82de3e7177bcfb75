"""The tool of NVIDIA's driver, asked for a table of the GPUs of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess

TOOL = "nvidia-smi"
SECONDS = 20.0
"""For an answer: without the driver's persistence mode each GPU is woken up first."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The operator's word on which GPUs processes may use, by index or UUID; the tool itself does not keep to it."""


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
