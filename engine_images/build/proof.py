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
from statistics import mean, median

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
    answers_alike: int
    """Answers that are the same from the first token to the last."""

    def within(self, tolerance: float) -> bool:
        """Whether no token differs by more."""
        return self.largest <= tolerance

    def problem(self, tolerance: float) -> str:
        """Why it is not."""
        return f"compiled and eager differ by up to {self.largest:.3g} in log-probability; {tolerance:g} is accepted"


class QuantizationEffect(Agreement):
    """How far an engine whose weights are quantized while they are loaded is from the same version without that."""

    mean: float
    """The mean difference of all tokens."""
    same_choice: float
    """Share of the places, 0 to 1, at which both hold the same token for the likeliest: of each greedy answer those up
    to the first at which they part."""

    def within(self, tolerance: float) -> bool:
        """Whether tokens differ by no more in the mean; a single one may, for a quantized model is another model."""
        return self.mean <= tolerance

    def problem(self, tolerance: float) -> str:
        """Why it is not."""
        return (
            f"quantized and original differ by {self.mean:.3g} in the mean log-probability of a token; "
            f"{tolerance:g} is accepted by engine.compile.quantization_tolerance"
        )


class GoldenTerms(Value):
    """What quantization may cost on a golden set."""

    digest: str
    """Of the prompts, and of how their answers are scored."""
    max_drop: float = Field(ge=0)
    """Of the mean score, 0 to 1."""


class GoldenEffect(Value):
    """How an engine whose weights are quantized while they are loaded answers a golden set, and how the original."""

    digest: str
    """As in `GoldenTerms`."""
    prompts: int = Field(ge=1)
    original: float
    """The mean score of the version as it is, 0 to 1."""
    quantized: float

    def within(self, terms: GoldenTerms) -> bool:
        """Whether the score drops by no more, and could: where neither scores, the quantized engine shows nothing."""
        if max(self.original, self.quantized) <= terms.max_drop:
            return False
        # 1 - 0.97 is a little more than 0.03 to a computer.
        return self.original - self.quantized <= terms.max_drop + 1e-9

    def problem(self, terms: GoldenTerms) -> str:
        """Why it does not."""
        return (
            f"quantized scores {self.quantized:.3g} on {self.prompts:,} golden prompts and the original "
            f"{self.original:.3g}; a drop of {terms.max_drop:g} is accepted by max_drop of the quality gate"
        )


def compare_golden(terms: GoldenTerms, original: Mapping[str, float], quantized: Mapping[str, float]) -> GoldenEffect:
    """Of the scores of both by prompt.

    Raises:
        ValueError: when they are not of the same prompts, or of none.
    """
    if not original or original.keys() != quantized.keys():
        raise ValueError(f"{len(original)} golden prompts of the original, {len(quantized)} of the quantized")
    return GoldenEffect(
        digest=terms.digest,
        prompts=len(original),
        original=mean(original.values()),
        quantized=mean(quantized.values()),
    )


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
        answers_alike=sum(one.answer == other.answer for one, other in zip(eager, compiled, strict=True)),
    )


def compare_quantized(original: Sequence[ScoredPrompt], quantized: Sequence[ScoredPrompt]) -> QuantizationEffect:
    """Both scored the same prompts, in the same order.

    Raises:
        ValueError: when they did not, or when there was nothing to compare.
    """
    pairs = list(zip(original, quantized, strict=True))
    differences = [difference for one, other in pairs for difference in _differences(one, other)]
    choices = [same for one, other in pairs for same in _choices(one, other)]
    return QuantizationEffect(
        **compare(original, quantized).model_dump(),
        mean=sum(differences) / len(differences),
        same_choice=sum(choices) / len(choices) if choices else 1.0,
    )


def _choices(one: ScoredPrompt, other: ScoredPrompt) -> Iterator[bool]:
    """Whether both chose the same token, at every place at which they had the same text before them."""
    for token, other_token in zip(one.answer, other.answer, strict=False):
        yield token == other_token
        if token != other_token:
            return


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


class Timing(Value):
    """How fast the prompts were answered, one at a time."""

    first_seconds: float
    calls: int
    p50_ms: float
    p99_ms: float
    prompts_per_second: float
    speedup: float | None
    """Median over the prompts of eager's time to this one's; None for an eager process."""


def timing_of(scored: Sequence[ScoredPrompt], eager: Sequence[ScoredPrompt] = ()) -> Timing | None:
    """How fast vLLM answered, one prompt at a time; None where nothing was timed."""
    seconds = [prompt.seconds for prompt in scored if prompt.seconds]
    if not seconds:
        return None
    ratios = [one.seconds / own.seconds for one, own in zip(eager, scored, strict=False) if own.seconds]
    return Timing(
        first_seconds=seconds[0],
        calls=len(seconds),
        p50_ms=median(seconds) * 1000,
        p99_ms=sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1] * 1000,
        prompts_per_second=len(seconds) / sum(seconds),
        speedup=median(ratios) if ratios else None,
    )


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


MOST_OF_A_COLD_START = 0.5
"""A start that needs more of the cold start's initialization has built something again, whatever it logged."""


class EngineStart(Value):
    """One start of the engine."""

    log: StartLog
    seconds: float
    """From the process' start until its first answer."""
    memory_bytes: int
    """Proportional set size of all its processes once it has answered."""
    key: CompileKey | None
    """What decided which compiled model fits; None when it ran eagerly."""
    timing: Timing | None = None


class CompileProof(Value):
    """What the build found out about its compile cache."""

    cold: EngineStart
    built: EngineStart
    eager: EngineStart
    rebuilt: int
    """Kernels that the built engine added to its cache: it should have found them there."""
    agreement: Agreement | None
    """None when the built engine did not come so far as to answer."""
    tolerance: float
    """The largest difference between compiled and eager that the build accepts."""
    floor: float | None = None
    """The smallest speedup that the build accepts."""

    def problems(self) -> tuple[str, ...]:
        """Why this cache must not be served; empty when it may."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        log = self.built.log
        if not log.loaded:
            yield f"the compile cache was missed: {self._why()}"
        elif self.rebuilt:
            yield f"the compiled model was loaded, but {self.rebuilt} of its kernels were built again"
        cold, built = self.cold.log.init_seconds, log.init_seconds
        if cold and built and built > MOST_OF_A_COLD_START * cold:
            yield f"the built engine took {built:.1f} s to initialize, a cold one {cold:.1f} s"
        if self.agreement and not self.agreement.within(self.tolerance):
            yield self.agreement.problem(self.tolerance)
        timing = self.built.timing
        if self.floor is not None and timing and timing.speedup is not None and not timing.speedup >= self.floor:
            yield f"compiled is {timing.speedup:.2f} times as fast as eager; at least {self.floor:g} is asked for"

    def _why(self) -> str:
        if self.built.log.refused:
            return self.built.log.refused
        if self.cold.key is None or self.built.key is None:
            return "vLLM computed no key"
        return "; ".join(without_hashes(self.cold.key.differences(self.built.key))) or "the keys are the same"


def without_hashes(differences: tuple[str, ...]) -> tuple[str, ...]:
    """Without the hash of a part whose own fields say what differs."""
    parts = {line.split(".", 1)[0] for line in differences if ".hash:" not in line}
    return tuple(line for line in differences if ".hash:" not in line or line.split(".", 1)[0] not in parts)


def kernels_added(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Kernels that are in the cache after a start and were not before. Empty lock files are none."""
    return tuple(sorted(path for path in after.keys() - before.keys() if path.endswith((".so", ".cubin", ".o"))))
