"""What an engine is built for, and how: what specs and commands choose between. Light, so that `--help` stays fast."""

from __future__ import annotations

from enum import StrEnum


class EnginePlatform(StrEnum):
    """What a build of vLLM and torch computes with."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


class CompileMode(StrEnum):
    """How much time compiling may take to find faster kernels."""

    DEFAULT = "default"
    """Compile, and keep the result: faster answers, a slow first start, later starts from the cache."""
    NONE = "none"
    """Run eagerly: the fastest start."""
    REDUCE_OVERHEAD = "reduce-overhead"
    """CUDA graphs, which vLLM captures in any mode."""
    MAX_AUTOTUNE = "max-autotune"


class KeyPolicy(StrEnum):
    """What an engine does at start when it was compiled for another machine."""

    WARN = "warn"
    """Say each difference, and compile again."""
    REFUSE = "refuse"


class DynamicShapes(StrEnum):
    """Whether torch.compile leaves sizes open."""

    AUTO = "auto"
    """torch decides when it sees a second shape."""
    YES = "yes"
    NO = "no"


class TorchDevice(StrEnum):
    """Where a torch module runs."""

    AUTO = "auto"
    """A GPU when torch sees one."""
    CPU = "cpu"
    CUDA = "cuda"
