"""The nouns of a trial: what is compiled how, and what one process found out about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engine_images.torch_compile.choices import Device, Dynamic, Mode
from tidegate.core.model import Value

Shape = tuple[int, ...]


class Subject(Value):
    """The model, and what it is called with."""

    factory: str
    """`MODULE:FUNCTION` or `PATH.py:FUNCTION`; returns a module and its inputs."""
    shapes: tuple[Shape, ...] = ()
    """Empty for a factory that returns its inputs itself."""
    device: Device = Device.AUTO
    repeats: int = 50
    """Measured calls of each shape."""


class Options(Value):
    """As torch.compile takes them."""

    mode: Mode = Mode.DEFAULT
    dynamic: Dynamic = Dynamic.AUTO
    fullgraph: bool = False


class Job(Value):
    """One trial in a process of its own."""

    subject: Subject
    options: Options | None = None
    """None runs eagerly."""
    save: Path | None = None
    load: Path | None = None


class Machine(Value):
    """What a trial ran on."""

    device: str
    torch: str


class ShapeRun(Value):
    """One shape, called again and again."""

    name: str
    """`8x128`; `example` for a factory's own inputs."""
    first_seconds: float
    """Of the first call, in which torch compiles."""
    samples: int
    """Inputs in one call."""
    calls: int
    errors: int
    """Calls that raised."""
    p50_ms: float | None
    """None when every call raised."""
    p99_ms: float | None
    samples_per_second: float
    speedup: float | None
    """Median of eager's time to this one's, call by call in turn in one process; None for an eager process."""


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


class Agreement(Value):
    """How far the outputs are from the eager ones, over every element of every output of every shape."""

    same_weights: bool
    """Whether the factory gave the eager process and this one the same model."""
    largest_difference: float
    largest_output: float
    """The largest eager output: differences are small or not beside it."""


class Run(Value):
    """What one process found out."""

    machine: Machine
    seconds: Mapping[str, float]
    """`ready`: from the process' start until each shape was answered once; and the parts of it."""
    shapes: tuple[ShapeRun, ...]
    memory_bytes: int
    """Proportional set size once every shape was answered."""
    gpu_peak_bytes: int | None
    """What torch had allocated at most while each shape was answered once more; None on a CPU."""
    counters: Counters
    agreement: Agreement
    factors: Mapping[str, str]
    """What decides whether a saved cache may be used."""
    saved_bytes: int | None


class Compiled(Value):
    """One way to compile: once from nothing, once from the saved cache."""

    options: Options
    cold: Run | None
    """None when only a cache that was saved before was tried."""
    cached: Run


class Trial(Value):
    """All of it."""

    subject: Subject
    eager: Run
    compiled: tuple[Compiled, ...]
