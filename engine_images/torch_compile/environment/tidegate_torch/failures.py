"""What goes wrong in a trial, each with a kind that the other side maps to an error, and one line."""

from __future__ import annotations

import re

LONGEST = 300
"""torch explains itself in pages; the rest is in the detail."""


MEANINGS = (
    ("out_of_memory", {"MemoryError", "OutOfMemoryError"}, "out of memory: {}"),
    ("graph_break", {"Unsupported"}, "fullgraph, but torch breaks the graph: {}"),
    ("recompiles", {"FailOnRecompileLimitHit"}, "torch compiled again and again, then gave up: {}"),
    ("not_compilable", {"TorchDynamoException", "InductorError"}, "torch cannot compile this model: {}"),
)
"""Kinds by the names of torch's exceptions, which it moves about; the first that fits counts."""


class Failure(Exception):
    """The trial ends; `kind` says what to do about it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def failure_of(error: BaseException) -> Failure | None:
    """What torch means by `error`; None for what it does not say, which is a bug of somebody's."""
    if isinstance(error, Failure):
        return error
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if "InvalidCxxCompiler" in kinds or "InvalidCxxCompiler" in text:
        return Failure("no_compiler", "torch finds no C++ compiler")
    for kind, names, message in MEANINGS:
        if kinds & names:
            return Failure(kind, message.format(one_line(error) if kind != "graph_break" else graph_break(text)))
    # What torch says on a CPU has no type of its own.
    if isinstance(error, RuntimeError) and "can't allocate memory" in text:
        return Failure("out_of_memory", f"out of memory: {one_line(text.partition('] ')[2] or text)}")
    return None


def one_line(error: BaseException | str) -> str:
    """The first line that says something, not too long."""
    lines = (line.strip() for line in str(error).splitlines())
    said = next((line for line in lines if line), type(error).__name__)
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def named(error: Exception) -> str:
    """`ValueError: what it says`."""
    return f"{type(error).__name__}: {one_line(error)}"


def graph_break(text: str) -> str:
    """What broke and where in the model's own code, of the page that torch writes."""
    why = re.search(r"Explanation: (.+)", text)
    places = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', text)
    where = f" ({places[-1][0]}:{places[-1][1]} in {places[-1][2]})" if places else ""
    return one_line(why[1] if why else text) + where
