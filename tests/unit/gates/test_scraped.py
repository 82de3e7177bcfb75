"""What both arms did in a window, from what Prometheus scraped of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fakes.metrics.scraped import TTFT, Engine, Fleet, Proxy

from gates.evidence.batch import ArmName, Batch, Buckets, PodEvidence
from gates.evidence.names import BUCKET, PROCESS_START
from gates.model import ArmKey

STABLE = ArmKey(region="eu-west-1", role="stable", version="6")
CANARY = ArmKey(region="eu-west-1", role="canary", version="7")
FOREVER = 1e9


def an_engine(name: str, key: ArmKey, ends: np.ndarray, ttft: float = 0.3, **changes: object) -> Engine:
    engine = Engine(
        name=name,
        version=key.version,
        roles=((0.0, key.role),),
        started=0.0,
        ended=FOREVER,
        requests=[(float(end), ttft) for end in ends],
    )
    return replace(engine, **changes)


def totals(*batches: Batch) -> Counter[tuple[ArmName, str, str, int]]:
    """Everything that batches count, as one sum."""
    found: Counter[tuple[ArmName, str, str, int]] = Counter()
    for batch in batches:
        for pod in batch.arms:
            for name in ("requests", "errors", "refused"):
                found[pod.arm, pod.pod, name, 0] += getattr(pod, name)
            if isinstance(pod.ttft, Buckets):
                for index, count in enumerate(pod.ttft.counts):
                    found[pod.arm, pod.pod, "ttft", index] += count
    return +found


def times(batch: Batch, arm: ArmName, pod: str | None = None) -> int:
    """How many TTFTs a batch holds of one arm, or of one pod of it."""
    found = [each.ttft for each in batch.arms if each.arm is arm and pod in {None, each.pod}]
    return sum(sum(ttft.counts) for ttft in found if isinstance(ttft, Buckets))


def a_life(rng: np.random.Generator, name: str, key: ArmKey) -> list[Engine]:
    """One address with processes that come and go."""
    ends = np.sort(rng.uniform(0, 600, 6))
    lives = []
    for started, ended in zip(ends[::2], ends[1::2], strict=True):
        requests = rng.uniform(started, ended, int(rng.integers(0, 80)))
        offset = float(rng.uniform(0, 1.9))
        lives.append(an_engine(name, key, requests, rng.uniform(0.05, 2), started=started, ended=ended, offset=offset))
    return [replace(life, offset=lives[0].offset) for life in lives]


@pytest.mark.parametrize("seed", range(10))
def test_windows_that_touch_add_up_to_the_window_over_both(seed: int) -> None:
    rng = np.random.default_rng(seed)
    engines = [life for number in range(3) for life in a_life(rng, f"s{number}", STABLE)]
    engines += a_life(rng, "c0", CANARY)
    changing = an_engine("x", CANARY, rng.uniform(0, 600, 300), roles=((0.0, "canary"), (rng.uniform(0, 600), "old")))
    codes = [(float(at), int(rng.choice([200, 200, 200, 400, 500, 503]))) for at in rng.uniform(0, 600, 300)]
    proxy = Proxy("envoy", "canary", "7", codes, torn=[float(at) for at in rng.uniform(0, 600, 20)])
    fleet = Fleet([*engines, changing], [proxy], knows_starts=bool(seed % 2))
    cuts = [150.0, *np.sort(rng.uniform(150, 550, 5)), 550.0]
    parts = [fleet.batch(STABLE, CANARY, low, high) for low, high in pairwise(cuts)]
    assert totals(*parts) == totals(fleet.batch(STABLE, CANARY, 150, 550))


def test_an_engine_that_takes_a_new_role_does_not_bring_its_past() -> None:
    requests = np.arange(1, 400)
    for starts in (True, False):
        engine = an_engine("e", CANARY, requests, roles=((0.0, "canary"), (300.0, "stable")))
        fleet = Fleet([engine], knows_starts=starts)
        promoted = STABLE.model_copy(update={"version": "7"})
        batch = fleet.batch(promoted, CANARY, 290, 400)
        assert times(batch, ArmName.CANARY) == 8
        assert times(batch, ArmName.STABLE) == 99
        assert batch.missing["stable ttft of unknown age"].startswith("300 ")


@pytest.mark.parametrize("knows_starts", [True, False])
def test_a_process_that_starts_within_the_window_began_at_zero(knows_starts: bool) -> None:
    engine = an_engine("e", CANARY, np.arange(101, 200), started=100.5)
    fleet = Fleet([engine], knows_starts=knows_starts)
    # Down until then, so nothing but its start tells the age of what it held at its first scrape.
    assert times(fleet.batch(STABLE, CANARY, 90, 200), ArmName.CANARY) == (99 if knows_starts else 97)


def test_a_restart_that_catches_up_between_two_scrapes_is_seen_by_its_start() -> None:
    old = an_engine("e", CANARY, np.array([10.0, 20.0]), ended=100.5)
    new = an_engine("e", CANARY, np.array([100.8, 101.0, 101.2]), started=100.6)
    fleet = Fleet([old, new])
    assert times(fleet.batch(STABLE, CANARY, 90, 120), ArmName.CANARY) == 3


def test_buckets_restart_together() -> None:
    slow = an_engine("e", CANARY, np.arange(1, 11), 0.8, ended=100.5)
    fast = an_engine("e", CANARY, np.array([100.7, 101.0, 101.2]), 0.05, started=100.6)
    batch = Fleet([slow, fast], knows_starts=False).batch(STABLE, CANARY, 90, 120)
    assert batch.arms == (
        PodEvidence(arm=ArmName.CANARY, pod="e", ttft=Buckets(edges=(0.1, 0.5, 1.0), counts=(3, 0, 0, 0))),
    )


def test_the_first_error_of_a_proxy_is_counted_although_its_series_is_new() -> None:
    proxy = Proxy("envoy", "canary", "7", [(10.0, 200), (100.2, 503), (100.3, 404)])
    (pod,) = Fleet(proxies=[proxy]).batch(STABLE, CANARY, 90, 110).arms
    assert (pod.requests, pod.errors, pod.refused) == (2, 1, 1)


def test_a_stream_that_was_cut_is_an_error_and_hides_behind_no_other_ones_status() -> None:
    proxy = Proxy("envoy", "canary", "7", [(91.0, 200), (92.0, 200), (99.0, 503)], torn=[95.0])
    fleet = Fleet(proxies=[proxy])
    (pod,) = fleet.batch(STABLE, CANARY, 90, 110).arms
    assert (pod.requests, pod.errors) == (4, 2)


def test_each_pod_stands_alone_and_all_on_the_edges_they_share() -> None:
    narrow = an_engine("a", STABLE, np.arange(1, 50), 0.3)
    wide = an_engine("b", STABLE, np.arange(1, 50), 0.7, edges=(0.1, 1.0, 2.0, float("inf")))
    batch = Fleet([narrow, wide]).batch(STABLE, CANARY, 10, 30)
    found = {pod.pod: pod.ttft for pod in batch.arms}
    assert found == {name: Buckets(edges=(0.1, 1.0), counts=(0, 20, 0)) for name in ("a", "b")}


def test_native_histograms_are_told_and_not_read() -> None:
    fleet = Fleet([an_engine(name, key, np.arange(1, 50)) for name, key in (("s", STABLE), ("c", CANARY))])
    kept = [one for one in fleet.select(0, 30) if one.name != TTFT + BUCKET]
    native = [replace(one, name=TTFT, values=(), native=True) for one in kept if one.name == PROCESS_START]
    batch = fleet.batch_from([*kept, *native], STABLE, CANARY, 10, 30)
    assert batch.arms == () and "native histograms, also with custom buckets, are not read" in batch.missing["ttft"]


def test_arms_without_a_common_edge_have_no_times() -> None:
    other = an_engine("c", CANARY, np.arange(1, 50), edges=(0.2, 2.0, float("inf")))
    batch = Fleet([an_engine("s", STABLE, np.arange(1, 50)), other]).batch(STABLE, CANARY, 10, 30)
    assert batch.arms == ()
    assert batch.missing["ttft"] == "the histograms of vllm:time_to_first_token_seconds share no bucket edge"
    assert batch.missing["requests"].count("Prometheus has no envoy_cluster_upstream_rq of") == 2


def test_an_arm_that_was_not_scraped_is_missing_and_a_quiet_one_is_not() -> None:
    batch = Fleet([an_engine("s", STABLE, np.array([]))]).batch(STABLE, CANARY, 10, 30)
    assert [(pod.arm, sum(pod.ttft.counts)) for pod in batch.arms if isinstance(pod.ttft, Buckets)] == [
        (ArmName.STABLE, 0)
    ]
    assert "Prometheus has no vllm:time_to_first_token_seconds of canary version 7" in batch.missing["ttft"]


def spoilt(name: str, value: float, labels: dict[str, str], *, drop: str = "") -> Batch:
    """The batch when one sample of a series is something else; `drop` is a label that is not there."""
    proxy = Proxy("envoy", "canary", "7", [(91.0, 200), (92.0, 500)])
    fleet = Fleet([an_engine("e", CANARY, np.arange(1, 200)), an_engine("s", STABLE, np.arange(1, 200))], [proxy])
    everything = []
    for one in fleet.select(0, 110):
        values, kept = one.values, dict(one.labels)
        if one.name == name and labels.items() <= one.labels.items():
            values = (*values[:-1], (values[-1][0], value))
            kept.pop(drop, None)
        everything.append(replace(one, values=values, labels=kept))
    return fleet.batch_from(everything, STABLE, CANARY, 90, 110)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.5, 2.0**60])
def test_a_value_that_is_no_count_makes_its_metric_absent_with_the_reason(value: float) -> None:
    times_gone = spoilt(TTFT + BUCKET, value, {"role": "canary", "le": "0.5"})
    assert [pod.ttft for pod in times_gone.arms if pod.arm is ArmName.CANARY] == [()]
    assert " in vllm:time_to_first_token_seconds of canary version 7 in eu-west-1" in times_gone.missing["ttft"]
    requests_gone = spoilt("envoy_cluster_upstream_rq", value, {"envoy_response_code": "500"})
    assert all(pod.requests == 0 for pod in requests_gone.arms)
    assert " in envoy_cluster_upstream_rq of canary version 7 in eu-west-1" in requests_gone.missing["requests"]
    # The other arm, and the other metric, stay.
    assert (
        times(requests_gone, ArmName.CANARY)
        == times(requests_gone, ArmName.STABLE)
        == times(times_gone, ArmName.STABLE)
        > 0
    )


def test_a_series_without_its_own_label_is_told() -> None:
    assert (
        "no number as envoy_response_code in envoy_cluster_upstream_rq"
        in spoilt("envoy_cluster_upstream_rq", 1.0, {"envoy_response_code": "500"}, drop="envoy_response_code").missing[
            "requests"
        ]
    )
    assert "histogram" in spoilt(TTFT + BUCKET, 1.0, {"role": "canary", "le": "+Inf"}, drop="le").missing["ttft"]


def test_what_is_counted_is_what_happened() -> None:
    rng = np.random.default_rng(11)
    engines = [
        an_engine(f"s{n}", STABLE, rng.uniform(0, 600, 400), offset=float(rng.uniform(0, 1.9))) for n in range(4)
    ]
    fleet = Fleet(engines)
    batch = fleet.batch(STABLE, CANARY, 200, 260)
    for engine in engines:
        # By the scrape that saw them: from the last one up to 200 s to the last one up to 260 s.
        low, high = (limit - (limit - engine.offset) % 2 for limit in (200, 260))
        truth = sum(low < ended <= high for ended, _ in engine.requests)
        assert times(batch, ArmName.STABLE, engine.name) == truth
