"""What a person chooses between; nothing heavy is imported here, so that `--help` stays fast."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """How much time torch.compile may take to find faster kernels."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    MAX_AUTOTUNE = "max-autotune"


class Dynamic(StrEnum):
    """Whether torch.compile leaves sizes open."""

    AUTO = "auto"
    """torch decides when it sees a second shape."""
    YES = "yes"
    NO = "no"

    @property
    def as_torch_has_it(self) -> bool | None:
        """None leaves it to torch."""
        return None if self is Dynamic.AUTO else self is Dynamic.YES


class Device(StrEnum):
    """Where a model runs."""

    AUTO = "auto"
    """A GPU when torch sees one."""
    CPU = "cpu"
    CUDA = "cuda"
