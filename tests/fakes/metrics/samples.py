"""Batches of evidence of both arms, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gates.evidence.batch import ArmName, Batch, Buckets, PairedAnswer, PairedReply, PodEvidence
from gates.stats.times import count_samples

VLLM_EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0)
"""Of the histogram in which vLLM counts its times to first token."""


@dataclass(frozen=True)
class Serving:
    """How one arm serves."""

    per_second: float
    ttft: float = 0.2
    """Median in seconds; the p95 is 2.3 times that."""
    failing: float = 0.005
    refusing: float = 0.01
    pods: int = 1
    score: float = 0.8
    scored: float = 0.0
    """The share of requests that a judge scores."""


def served(arm: ArmName, how: Serving, seconds: float, rng: np.random.Generator) -> Iterator[PodEvidence]:
    """What each pod of an arm did in so many seconds."""
    for pod in range(how.pods):
        requests = int(rng.poisson(how.per_second * seconds / how.pods))
        errors = int(rng.binomial(requests, how.failing))
        refused = int(rng.binomial(requests - errors, how.refusing))
        ttft = rng.lognormal(np.log(how.ttft), 0.5, requests - errors - refused)
        scores = rng.beta(10 * how.score, 10 * (1 - how.score), int(requests * how.scored))
        yield PodEvidence(
            arm=arm,
            pod=f"{arm}-{pod}",
            requests=requests,
            errors=errors,
            refused=refused,
            ttft=tuple(ttft.tolist()),
            scores=tuple(scores.tolist()),
        )


def traffic(canary: Serving, stable: Serving, *, looks: int, seconds: float = 10, seed: int = 0) -> Iterator[Batch]:
    """A batch for each look."""
    rng = np.random.default_rng(seed)
    for look in range(looks):
        arms = (*served(ArmName.CANARY, canary, seconds, rng), *served(ArmName.STABLE, stable, seconds, rng))
        yield Batch(time=1000 + (look + 1) * seconds, arms=arms)


def in_buckets(batch: Batch) -> Batch:
    """The same batch as an engine's histogram has it."""
    edges = np.asarray(VLLM_EDGES)
    return batch.model_copy(
        update={"arms": tuple(pod.model_copy(update={"ttft": _bucketed(pod, edges)}) for pod in batch.arms)}
    )


def _bucketed(pod: PodEvidence, edges: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Buckets:
    assert not isinstance(pod.ttft, Buckets)
    return Buckets(edges=VLLM_EDGES, counts=tuple(count_samples(pod.ttft, edges).astype(int).tolist()))


def mirrored(
    looks: int, *, each: int = 20, slower: float = 1.0, lost: float = 0.0, alike: float = 0.9, seed: int = 0
) -> Iterator[Batch]:
    """Batches of pairs from our own probe; `lost` is the share of prompts that the canary leaves unanswered."""
    rng = np.random.default_rng(seed)
    for look in range(looks):
        yield Batch(
            time=1000 + (look + 1) * 10,
            source="probe",
            pairs=tuple(_pair(rng, slower, lost, alike) for _ in range(each)),
        )


def _pair(rng: np.random.Generator, slower: float, lost: float, alike: float) -> PairedAnswer:
    hard, noise = rng.lognormal(np.log(0.2), 0.5), rng.normal(0, 0.1, 2)
    stable = PairedReply(ttft=float(hard * np.exp(noise[0])), score=0.8, output_tokens=100, finish_reason="stop")
    if rng.random() < lost:
        return PairedAnswer(stable=stable)
    canary = stable.model_copy(update={"ttft": float(hard * slower * np.exp(noise[1]))})
    return PairedAnswer(stable=stable, canary=canary, similarity=float(np.clip(rng.normal(alike, 0.05), 0, 1)))
