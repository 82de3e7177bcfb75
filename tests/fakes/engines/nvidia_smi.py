"""Stands in for the tool of NVIDIA's driver: it answers `--query-gpu=name --format=csv,noheader,nounits`."""

from __future__ import annotations

import os
from pathlib import Path

H100 = "NVIDIA H100 80GB HBM3"


def path_with_gpus(folder: Path, *names: str) -> str:
    """Write the program into `folder`, for a machine with these GPUs; a value for PATH that finds it first."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"echo '{name}'\n" for name in names)
    (folder / "nvidia-smi").write_text(f'#!/bin/sh\n[ "$1" = --query-gpu=name ] || exit 9\n{lines}', encoding="ascii")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"
