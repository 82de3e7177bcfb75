"""What a process is asked to do, as it comes in on stdin, and how it can fail: each with a kind and one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LONGEST = 300
"""torch explains itself in pages; the rest is in the detail."""


MEANINGS = (
    ("out_of_memory", {"MemoryError", "OutOfMemoryError"}, "out of memory: {}"),
    ("graph_break", {"Unsupported"}, "fullgraph, but torch breaks the graph: {}"),
    ("recompiles", {"FailOnRecompileLimitHit"}, "torch compiled again and again, then gave up: {}"),
    ("not_compilable", {"TorchDynamoException", "InductorError"}, "torch cannot compile this model: {}"),
)
"""Kinds by the names of torch's exceptions, which it moves about; the first that fits counts."""


class TrialFailure(Exception):
    """The trial ends; `kind` says what to do about it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def failure_of(error: BaseException) -> TrialFailure | None:
    """What torch means by `error`; None for what it does not say, which is a bug of somebody's."""
    if isinstance(error, TrialFailure):
        return error
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "InvalidCxxCompiler" in kinds or "InvalidCxxCompiler" in text:
        return TrialFailure("no_compiler", "torch finds no C++ compiler")
    for kind, names, message in MEANINGS:
        if kinds & names:
            return TrialFailure(kind, message.format(one_line(error) if kind != "graph_break" else graph_break(text)))
    # What torch says on a CPU has no type of its own.
    if isinstance(error, RuntimeError) and "can't allocate memory" in text:
        return TrialFailure("out_of_memory", f"out of memory: {one_line(text.partition('] ')[2] or text)}")
    return None


def one_line(error: BaseException | str) -> str:
    """The first line that says something, not too long."""
    lines = (line.strip() for line in str(error).splitlines())
    said = next((line for line in lines if line), type(error).__name__)
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def named(error: Exception) -> str:
    """`ValueError: what it says`."""
    return f"{type(error).__name__}: {one_line(error)}"


Places = Sequence[tuple[str, int | str, str]]
"""File, line and function, the innermost last."""


def graph_break(text: str, places: Places = ()) -> str:
    """What broke and where in the model's own code, of the page that torch writes."""
    why = re.search(r"Explanation: (.+)", text)
    found = places or re.findall(r'File "([^"]+)", line (\d+), in (\S+)', text)
    where = f" ({found[-1][0]}:{found[-1][1]} in {found[-1][2]})" if found else ""
    return one_line(why[1] if why else text) + where


@dataclass(frozen=True)
class Job:
    """One trial of one model."""

    factory: str
    """`MODULE:FUNCTION` or `PATH.py:FUNCTION`."""
    shapes: list[list[int]]
    """Empty for a factory that returns its inputs."""
    files: str | None
    """The folder of the model version's files, for a factory that takes it."""
    device: str
    """`cpu`, `cuda`, or `auto`: a GPU when torch sees one."""
    mode: str | None
    """Of torch.compile; None runs eagerly."""
    dynamic: str | None
    """`auto`, `yes` or `no`: whether sizes stay open."""
    fullgraph: bool
    repeats: int
    """Calls a shape that are measured."""
    spawned: float
    """Of the monotonic clock, when this process was started."""
    workdir: str
    """Exists. Eager outputs are kept here."""
    result: str
    """The file to write."""
    key_only: bool = False
    """Nothing is called: what decides whether a saved cache may be used is all that is asked."""
    save: str | None = None
    """A folder that does not exist yet, for the cache."""
    load: str | None = None
    """The folder of a saved cache."""

    @classmethod
    def read(cls, data: dict[str, Any]) -> Job:
        """From JSON of exactly these fields."""
        return cls(**data)
