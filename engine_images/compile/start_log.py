"""What vLLM 0.32 says of a start in its log: whether it compiled, loaded what was compiled, and how long it took."""

from __future__ import annotations

import re

from tidegate.core.model import Value

_INIT = re.compile(r"init engine \(.*?\) took ([0-9.]+) s")
_LOADED = re.compile(r"Directly load AOT compilation from path")
_SAVED = re.compile(r"saved AOT compiled function to")
_REFUSED = re.compile(r"Compiling model again due to a load failure from .*?, reason: (.*)")


class StartLog(Value):
    """One start, as vLLM told it."""

    init_seconds: float | None
    """Of the engine's initialization: profile, compile or load, KV cache, warm-up. None when it did not come so far."""
    loaded: bool
    """A compiled model was loaded. Its kernels may have been built again all the same."""
    saved: bool
    """A model was compiled, and kept."""
    refused: str
    """Why a compiled model that was there was not taken; empty when it was, or when there was none."""


def read_start_log(text: str) -> StartLog:
    """Read the log of one start; of several ranks the slowest counts, and all must have loaded."""
    seconds = [float(found[1]) for found in _INIT.finditer(text)]
    refusal = _REFUSED.search(text)
    return StartLog(
        init_seconds=max(seconds, default=None),
        loaded=bool(_LOADED.search(text)) and not refusal and not _SAVED.search(text),
        saved=bool(_SAVED.search(text)),
        refused=refusal[1].strip() if refusal else "",
    )
