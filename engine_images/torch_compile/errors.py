"""What a trial of a torch model can end with, by the kind that its process names.

BadModel (UsageError)          the factory, its shapes, or a model that torch cannot compile as asked
OtherKey (UsageError)          a saved cache was made for something else, or is not whole
NoRoom (OutsideError)          out of memory
TrialFailed (OutsideError)     the process died, took too long, or has not what it needs
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.errors import OutsideError, TidegateError, UsageError


class BadModel(UsageError):
    """The factory, its shapes, or a model that torch cannot compile as asked."""


class OtherKey(UsageError):
    """A saved cache was made for something else, or is not whole."""


class NoRoom(OutsideError):
    """Out of memory."""


class TrialFailed(OutsideError):
    """The process died, took too long, or has not what it needs."""


KINDS: Mapping[str, tuple[type[TidegateError], str | None]] = {
    "wrong_factory": (BadModel, None),
    "wrong_shape": (BadModel, None),
    "graph_break": (BadModel, "leave out --fullgraph, or change the model there"),
    "recompiles": (BadModel, "say --dynamic yes, or fewer shapes"),
    "not_compilable": (BadModel, None),
    "model_failed": (BadModel, None),
    "other_key": (OtherKey, "compile anew with --save"),
    "damaged_cache": (OtherKey, "compile anew with --save"),
    "nothing_saved": (BadModel, None),
    "out_of_memory": (NoRoom, "try smaller shapes"),
    "no_device": (TrialFailed, "say --device cpu"),
    "no_compiler": (TrialFailed, "run: tidegate setup"),
}
"""The error and what to do about it."""


def error_of(kind: str, message: str, detail: str) -> TidegateError:
    """The error that a process' `kind` means."""
    error, hint = KINDS.get(kind, (TrialFailed, None))
    return error(message, hint=hint, detail=detail)
