"""A fresh canary's empty cache is no fault of its version: what counts of its times, and what is said meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from fakes.metrics.samples import Serving, traffic
from fakes.metrics.scraped import Engine, Fleet
from scipy import stats

from gates.analyses.latency import LatencyGate
from gates.evidence.batch import ArmName, Batch
from gates.model import ArmKey, GateOutcome, Verdict
from gates.sequential_test import AnalysisPlan, SequentialTest
from gates.stats.times import LatencyProcess
from gates.stats.warmth import HALF_LIFE_REQUESTS, CachedShares

TOKENS = 1000
"""Of all prompts of an arm in one look."""


def cached(batches: Iterator[Batch], *shares: float, stable: float = 0.6) -> Iterator[Batch]:
    """With the canary's cached share, look by look, the last one for ever; below 0 where nobody counts."""
    for look, batch in enumerate(batches):
        of_arm = {ArmName.STABLE: stable, ArmName.CANARY: shares[min(look, len(shares) - 1)]}
        arms = []
        for pod in batch.arms:
            share = of_arm[pod.arm]
            tokens = {"prompt_tokens": TOKENS, "cached_tokens": round(TOKENS * share)} if share >= 0 else {}
            arms.append(pod.model_copy(update=tokens))
        yield batch.model_copy(update={"arms": tuple(arms)})


def judged(batches: Iterator[Batch], **settings: float) -> Verdict:
    trial = SequentialTest(AnalysisPlan(latency=LatencyGate.model_validate(settings)))
    for batch in batches:
        trial.take(batch)
    (verdict,) = trial.verdicts(deadline_passed=True)
    return verdict


def served(ttft: float = 0.2, *, looks: int = 20, start: float = 0.0) -> Iterator[Batch]:
    for batch in traffic(Serving(100, ttft=ttft), Serving(900, pods=3), looks=looks):
        yield batch.model_copy(update={"time": batch.time + start})


def warming(after: float = 0.2) -> Iterator[Batch]:
    """Twice as slow while the cache is cold, and then so."""
    yield from cached(served(0.4, looks=8), 0.1)
    yield from cached(served(after, start=80), 0.6)


@pytest.mark.parametrize(
    ("batches", "outcome"),
    [
        (warming(), GateOutcome.PASS),
        (warming(after=0.4), GateOutcome.FAIL),
        (cached(served(0.4), -1), GateOutcome.FAIL),
        (cached(served(0.4), 0.0, stable=-1), GateOutcome.FAIL),
        (cached(served(0.4), 0.0, stable=0.0), GateOutcome.FAIL),
        (cached(served(), 0.57), GateOutcome.PASS),
    ],
    ids=["warm then", "warm and slow", "off on the canary", "off on stable", "nothing to keep", "within the margin"],
)
def test_only_requests_of_a_warm_canary_count(batches: Iterator[Batch], outcome: GateOutcome) -> None:
    assert judged(batches).outcome is outcome


def test_a_cold_canary_neither_fails_nor_passes_and_is_told_so() -> None:
    verdict = judged(cached(served(0.4), 0.12))
    assert (verdict.outcome, verdict.reason) == (
        GateOutcome.INCONCLUSIVE,
        "the canary's cache is cold: it had 12% of the prompts' tokens, stable's 60%; "
        "requests are compared once that is within 5 pp",
    )
    assert judged(cached(served(0.4), 0.12), max_colder=0.5).outcome is GateOutcome.FAIL


def test_a_canary_that_has_become_cold_again_keeps_what_it_has_shown() -> None:
    """New pods at a higher weight: what they do while they are cold does not count."""
    batches = [*cached(served(), 0.6), *cached(served(0.4, start=200), 0.1)]
    whole, before = judged(iter(batches)), judged(iter(batches[:21]))
    assert whole.numbers["canary_requests"] == before.numbers["canary_requests"]
    assert whole.outcome is GateOutcome.PASS and "; now the canary's cache is cold: " in whole.reason


def test_a_share_is_of_the_last_requests_and_a_cold_scrape_is_told_by_itself_only_beyond_chance() -> None:
    def scrape(shares: CachedShares, canary: float, requests: float = 100.0) -> bool:
        return bool(shares.cold(np.array([[canary, 90], [50, 100]]), np.array([requests, 1000.0]), 0.05))

    shares = CachedShares()
    assert shares.shares.tolist() == [0, 1], "an empty cache, and one that may have all"
    assert scrape(shares, 45), "of a canary nobody knows anything yet"
    # 20 pp are margin and chance of 100 requests.
    assert not scrape(shares, 28) and scrape(CachedShares(), 28)
    assert scrape(shares, 45), "what was seen before decides"
    for _ in range(20):
        scrape(shares, 45)
    assert not scrape(shares, 90) and scrape(shares, 26), "new pods are cold"
    once = CachedShares()
    once.cold(np.array([[90.0, 90], [50, 100]]), np.zeros(2), 0.05)
    once.cold(np.array([[0.0, 90], [0, 0]]), HALF_LIFE_REQUESTS, 0.05)
    assert once.shares.tolist() == pytest.approx([1 / 3, 0.5])


def test_what_counts_by_the_past_alone_wins_nothing() -> None:
    """Over every way to deal both scrapes: the second counts only where the first looked well for the canary."""
    pools, drawn = ((4, 3, 2), (2, 3, 4)), 3
    dealt = []
    for pool in pools:
        counts = np.asarray([each for each in product(*(range(n + 1) for n in pool)) if sum(each) == drawn])
        dealt.append((counts.astype(float), stats.multivariate_hypergeom(m=pool, n=drawn).pmf(counts)))
    ways = np.asarray(list(product(*(range(len(counts)) for counts, _ in dealt))))
    process = LatencyProcess(
        (0.1, 0.2), quantile=0.5, max_increase=0.5, tolerance=0, temper=False, leading=(len(ways),)
    )
    process.learn(np.broadcast_to([30.0, 20, 10], (len(ways), 1, 3)), 60)
    first, second = (counts[ways[:, place]] for place, (counts, _) in enumerate(dealt))
    for canary, pool in ((first, pools[0]), (second * (first[:, :1] > 0), pools[1])):
        process.feed(canary, (np.asarray(pool) - canary)[:, None], 30)
    chance = dealt[0][1][ways[:, 0]] * dealt[1][1][ways[:, 1]]
    assert float(chance @ np.exp(process.log_worse)) == pytest.approx(1, abs=1e-9)


def test_engines_counters_are_read_and_differenced() -> None:
    stable, canary = (ArmKey(region="eu-west-1", role=role, version=role[0]) for role in ("stable", "canary"))
    tokens = {"stable": (60, 100), "canary": (7, 100)}
    requests = [(float(end), 0.3) for end in range(1, 400)]
    engines = [
        Engine(key.role, key.version, ((0.0, key.role),), 0.0, 1e9, requests, cached=tokens[key.role])
        for key in (stable, canary)
    ]
    batch = Fleet(engines).batch(stable, canary, 200, 220)
    assert {pod.arm: (pod.cached_tokens, pod.prompt_tokens) for pod in batch.arms} == {
        ArmName.STABLE: (1200, 2000),
        ArmName.CANARY: (140, 2000),
    }
