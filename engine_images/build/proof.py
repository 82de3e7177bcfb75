"""Whether a compile cache does what it is for: it is loaded, nothing is built again, the model is the same, and fast.

A line in a log is not enough: each of these was once true alone. The model is the same when log-probabilities of the
same tokens are. Tokens are no measure: two that are nearly as likely change places for a difference in the last bit,
and everything after them is another text. So the tokens of a prompt are compared, which both are given, and of an
answer those up to the first that differs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from pydantic import Field

from engine_images.manifest import CompileKey
from tidegate.core.model import Value


class ScoredPrompt(Value):
    """One prompt and its greedy answer as one engine scored them."""

    prompt: tuple[float, ...]
    """Log-probability of each token of the prompt but the first, which follows nothing."""
    answer: tuple[str, ...]
    """The tokens of the answer."""
    logprobs: tuple[float, ...]
    """Of the answer's tokens."""
    seconds: float = 0
    """From the request until its answer was complete."""


class Agreement(Value):
    """How far two engines are apart in the natural logarithm of probabilities."""

    prompts: int
    tokens: int = Field(ge=1)
    """Compared."""
    largest: float
    """The largest difference of all tokens."""
    p99: float
    """The 99th percentile of the differences: the smallest that 99 % of them do not exceed."""

    def within(self, tolerance: float) -> bool:
        """Whether no token differs by more."""
        return self.largest <= tolerance

    def problem(self, tolerance: float) -> str:
        """Why it is not."""
        return f"compiled and eager differ by up to {self.largest:.3g} in log-probability; {tolerance:g} is accepted"


def compare(eager: Sequence[ScoredPrompt], compiled: Sequence[ScoredPrompt]) -> Agreement:
    """Both scored the same prompts, in the same order.

    Raises:
        ValueError: when they did not, or when there was nothing to compare.
    """
    differences = sorted(
        difference for one, other in zip(eager, compiled, strict=True) for difference in _differences(one, other)
    )
    if not differences:
        raise ValueError("no token was scored by both")
    return Agreement(
        prompts=len(eager),
        tokens=len(differences),
        largest=differences[-1],
        p99=differences[math.ceil(0.99 * len(differences)) - 1],
    )


def _differences(eager: ScoredPrompt, compiled: ScoredPrompt) -> Iterator[float]:
    if len(eager.prompt) != len(compiled.prompt):
        raise ValueError(f"a prompt of {len(eager.prompt)} tokens has {len(compiled.prompt)} with the other engine")
    for one, other in zip(eager.prompt, compiled.prompt, strict=True):
        yield abs(one - other)
    answers = zip(eager.answer, compiled.answer, eager.logprobs, compiled.logprobs, strict=False)
    for token, other_token, one, other in answers:
        if token != other_token:
            return
        yield abs(one - other)


def speedup_of(scored: Sequence[ScoredPrompt], eager: Sequence[ScoredPrompt]) -> float | None:
    """Median over the prompts of eager's time to this one's; None where nothing was timed."""
    ratios = [one.seconds / own.seconds for one, own in zip(eager, scored, strict=False) if own.seconds]
    return median(ratios) if ratios else None


_INIT = re.compile(r"init engine \(.*?\) took ([0-9.]+) s")
_LOADED = re.compile(r"Directly load AOT compilation from path")
_SAVED = re.compile(r"saved AOT compiled function to")
_REFUSED = re.compile(r"Compiling model again due to a load failure from .*?, reason: (.*)")


class StartLog(Value):
    """What one start did with its compile cache, by vLLM's log."""

    init_seconds: float | None
    """Of vLLM's initialization: profile, compile or load, KV cache, warm-up. None when it did not come so far."""
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


class EngineStart(Value):
    """One start of the engine."""

    log: StartLog
    seconds: float
    """From the process' start until its first answer."""
    memory_bytes: int
    """Proportional set size of all its processes once it has answered."""
    key: CompileKey | None
    """What decided which compiled model fits; None when it ran eagerly."""
    speedup: float | None = None
    """How many times as fast as the eager engine it answered the prompts."""


def without_hashes(differences: Sequence[str]) -> tuple[str, ...]:
    """Without the hash of a part whose own fields say what differs."""
    parts = {line.split(".", 1)[0] for line in differences if ".hash:" not in line}
    return tuple(line for line in differences if ".hash:" not in line or line.split(".", 1)[0] not in parts)


def kernels_added(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Kernels that are in the cache after a start and were not before. Empty lock files are none."""
    return tuple(sorted(path for path in after.keys() - before.keys() if path.endswith((".so", ".cubin", ".o"))))
