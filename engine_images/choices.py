"""What an engine is built for, and how: what specs and commands choose between. Light, so that `--help` stays fast."""

from __future__ import annotations

from enum import StrEnum

VLLM = "0.32.0"
"""The version with which engines are built here."""


class EnginePlatform(StrEnum):
    """What a build of vLLM and torch computes with."""

    CPU = "cpu"
    CUDA = "cuda"


class CompileMode(StrEnum):
    """How much time compiling may take to find faster kernels."""

    DEFAULT = "default"
    """Compile, and keep the result: faster answers, a slow first start, later starts from the cache."""
    NONE = "none"
    """Run eagerly: the fastest start."""
    MAX_AUTOTUNE = "max-autotune"
