"""On which a compiled model is compared with the eager one: short and long, several languages and scripts, code."""

from __future__ import annotations

from pathlib import Path


def prompts() -> tuple[str, ...]:
    """Fifty; the same for every build, so that their figures can be compared."""
    return tuple(Path(__file__).with_name("prompts.txt").read_text(encoding="utf-8").splitlines())
