"""Let the same build give the same bytes: torch 2.13 puts random names and its own times into what it compiles.

We give names in order, which are still unique within a process, and no times. Strings must hash alike too:
a build runs with PYTHONHASHSEED=0.
"""

from __future__ import annotations

import itertools
import os
import uuid
from typing import Any

VARIABLE = "TIDEGATE_REPRODUCIBLE"
"""Set while an engine is built. An engine that serves has no need of it."""


class NamesInOrder:
    """Stands for the module `uuid` where torch asks it for a name."""

    def __init__(self) -> None:
        """The first name is the same in every process."""
        self._numbers = itertools.count(1)

    def uuid4(self) -> uuid.UUID:
        """The next number, in the form of a UUID."""
        return uuid.UUID(int=next(self._numbers))


def register() -> None:
    """Have torch name what it compiles in order; vLLM calls this in each of its processes."""
    if VARIABLE not in os.environ:
        return
    import torch._dynamo.bytecode_transformation as bytecode
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    bytecode.uuid = NamesInOrder()
    original = AOTAutogradCache.make_entry

    def make_entry(*arguments: Any, **named: Any) -> Any:
        # How long compiling took, which nobody reads but torch's own log of time saved.
        return original(*arguments, **named | {"forward_time_taken_ns": 0, "backward_time_taken_ns": 0})

    AOTAutogradCache.make_entry = staticmethod(make_entry)
