"""What the engine environment is made from, under one name."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

RECIPE = Path(__file__).parent
"""What is installed: the locks, and our plugin for vLLM."""


def recipe_digest() -> str:
    """One name for everything that the environment is made from."""
    # Another Python compiles other files.
    digest = hashlib.sha256(sys.version.encode())
    for file in (RECIPE / "torch.in", RECIPE / "engine.lock", *sorted((RECIPE / "plugin").glob("*.*"))):
        digest.update(file.read_bytes())
    return digest.hexdigest()
