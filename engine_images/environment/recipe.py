"""What the engine environment is made from, under one name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

RECIPE = Path(__file__).parent
"""What is installed: the locks, and our plugin for vLLM."""

CPU_TORCH = (RECIPE / "torch.in").read_text(encoding="utf-8").splitlines()[-1]
PYPI_TORCH = CPU_TORCH.removesuffix("+cpu")
"""The same release as PyPI has it, with CUDA: what there is where torch's own index cannot be reached."""


def recipe_digest(torch: str) -> str:
    """One name for everything that the environment is made from, with that torch."""
    # Another Python compiles other files.
    digest = hashlib.sha256(sys.version.encode())
    for file in (RECIPE / "torch.in", RECIPE / "engine.lock", *sorted((RECIPE / "plugin").glob("*.*"))):
        digest.update(file.read_bytes())
    if torch != CPU_TORCH:
        digest.update(torch.encode())
    return digest.hexdigest()
