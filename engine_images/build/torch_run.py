"""A run of a torch module: what is compiled, how, what its process measured, and how a process can fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine_images.build.proof import EngineStart, OutputAgreement, StartLog, Timing
from engine_images.choices import CompileMode, DynamicShapes, TorchDevice
from engine_images.manifest import CompileKey
from tidegate.core.errors import OutsideError, TidegateError, UsageError
from tidegate.core.model import Value


class BadModel(UsageError):
    """The factory, its shapes, or a model that torch cannot compile as asked."""


class OtherKey(UsageError):
    """A saved cache was made for something else, or is not whole."""


class NoRoom(OutsideError):
    """Out of memory."""


class RunFailed(OutsideError):
    """The process died, took too long, or has not what it needs."""


KINDS: Mapping[str, tuple[type[TidegateError], str | None]] = {
    "wrong_factory": (BadModel, None),
    "wrong_shape": (BadModel, None),
    "graph_break": (BadModel, "leave out fullgraph, or change the model there"),
    "recompiles": (BadModel, "set dynamic to yes, or take fewer shapes"),
    "not_compilable": (BadModel, None),
    "model_failed": (BadModel, None),
    "other_key": (OtherKey, "compile it again"),
    "damaged_cache": (OtherKey, "compile it again"),
    "nothing_saved": (BadModel, None),
    "out_of_memory": (NoRoom, "try smaller shapes"),
    "no_device": (RunFailed, "set device to cpu"),
    "no_compiler": (RunFailed, "run: tidegate setup"),
}
"""The error and what to do about it."""


def error_of(kind: str, message: str, detail: str) -> TidegateError:
    """The error that a process' `kind` means."""
    error, hint = KINDS.get(kind, (RunFailed, None))
    return error(message, hint=hint, detail=detail)


Shape = tuple[int, ...]


def shape_from(text: str) -> Shape:
    """`8x128` as sizes.

    Raises:
        UsageError: it is none.
    """
    sizes = text.lower().split("x")
    if not all(size.isascii() and size.isdigit() and int(size) for size in sizes):
        raise UsageError(f"found the shape {text!r}; expected sizes such as 8x128")
    return tuple(int(size) for size in sizes)


class TorchWorkload(Value):
    """The model, and what it is called with."""

    factory: str
    """`MODULE:FUNCTION` or `PATH.py:FUNCTION`; returns a module and its inputs."""
    shapes: tuple[Shape, ...] = ()
    """Empty for a factory that returns its inputs itself."""
    device: TorchDevice = TorchDevice.AUTO
    repeats: int = 50
    """Measured calls of each shape."""


class CompileOptions(Value):
    """As torch.compile takes them."""

    mode: CompileMode = CompileMode.DEFAULT
    dynamic: DynamicShapes = DynamicShapes.AUTO
    fullgraph: bool = False


class TorchJob(Value):
    """One run in a process of its own."""

    subject: TorchWorkload
    options: CompileOptions | None = None
    """None runs eagerly."""
    files: Path | None = None
    """The model version's, for a factory that takes their folder."""
    save: Path | None = None
    load: Path | None = None


class TorchMachine(Value):
    """What a module ran on."""

    device: str
    torch: str


class Counters(Value):
    """torch's own: which graphs came out of a cache."""

    graph_hits: int
    graph_misses: int
    graph_bypassed: int
    """Graphs that torch does not cache."""
    autograd_hits: int
    autograd_misses: int
    graph_breaks: int
    kernels_built: int
    """C++ files that were compiled in this process."""


class TorchRun(Value):
    """What one process found out."""

    machine: TorchMachine
    seconds: Mapping[str, float]
    """`ready`: from the process' start until each shape was answered once; and the parts of it."""
    shapes: tuple[Timing, ...]
    memory_bytes: int
    """Proportional set size once every shape was answered."""
    gpu_peak_bytes: int | None
    """What torch had allocated at most while each shape was answered once more; None on a CPU."""
    counters: Counters
    breaks: tuple[str, ...] = ()
    """Why torch broke the graph, and where, as often as it did."""
    agreement: OutputAgreement | None
    """None when no eager process ran before."""
    factors: Mapping[str, str]
    """What decides whether a saved cache may be used."""
    saved_bytes: int | None

    def start(self, *, eager: bool = False) -> EngineStart:
        """The same as of any engine's start."""
        found, again = self.counters.graph_hits, self.counters.graph_misses + self.counters.graph_bypassed
        log = StartLog(
            init_seconds=None,
            loaded=bool(found) and not again,
            saved=bool(self.saved_bytes),
            refused="" if eager else f"{again} graphs compiled again, {found} found",
        )
        return EngineStart(
            log=log,
            seconds=self.seconds["ready"],
            memory_bytes=self.memory_bytes,
            key=None if eager else CompileKey(factors=self.factors),
            timings=self.shapes,
            breaks=self.breaks,
        )
