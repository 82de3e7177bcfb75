"""Requests as vLLM counts them itself, where no proxy of ours is."""

from __future__ import annotations

from gates.evidence.batch import ArmName, PodEvidence
from gates.evidence.names import named_by
from gates.evidence.scrape import batch_of
from gates.evidence.series import ArmScrapes, RawSeries, ScrapeWindow, Targets
from gates.model import ArmKey
from tidegate.core.metrics import MetricSource, PresetName

KEY = ArmKey(region="eu-west-1", role="canary", version="2")


def of_engine(
    pod: str, status: str, *counts: float, handler: str = "/v1/chat/completions", method: str = "POST"
) -> RawSeries:
    """A counter of one pod, scraped every 10 s."""
    labels = {"pod": pod, "instance": pod, "job": "engines", "status": status, "handler": handler, "method": method}
    values = tuple((10.0 * index, count) for index, count in enumerate(counts))
    return RawSeries(name="http_requests_total", labels=labels, values=values)


def pods(*series: RawSeries, since: float = 0.0, until: float = 20.0) -> tuple[tuple[PodEvidence, ...], dict[str, str]]:
    """What the window has of the canary, and what it misses of requests."""
    lives = [({"job": "engines", "instance": pod}, [(10.0 * step, 1.0) for step in range(3)]) for pod in ("a", "b")]
    window = ScrapeWindow(since=since, until=until, targets=Targets(lives, [], lookback_seconds=120))
    arm = ArmScrapes(arm=ArmName.CANARY, key=KEY, series=series)
    batch = batch_of([arm], window, named_by([MetricSource(preset=PresetName.VLLM)], service=""))
    return batch.arms, {what: why for what, why in batch.missing.items() if what == "requests"}


def test_endpoints_of_one_pod_add_up() -> None:
    found, _ = pods(of_engine("a", "2xx", 0, 2, 4), of_engine("a", "2xx", 0, 3, 6, handler="/v1/completions"))
    assert found[0].requests == 10


def test_health_checks_and_lists_of_models_are_nobodys_requests() -> None:
    _, missing = pods(
        of_engine("a", "2xx", 0, 20, 40, handler="/health", method="GET"),
        of_engine("a", "2xx", 0, 20, 40, handler="/v1/models", method="GET"),
        of_engine("a", "2xx", 0, 20, 40, handler="/tokenize"),
    )
    assert missing == {"requests": f"Prometheus has no http_requests_total of {KEY} in this window"}


def test_a_status_that_is_none_is_told() -> None:
    _, missing = pods(of_engine("a", "fine", 0, 1, 2))
    assert "no number as status in http_requests_total" in missing["requests"]
