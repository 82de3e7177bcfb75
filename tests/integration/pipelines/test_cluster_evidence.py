"""What gates and fleets read of clusters, from real Prometheis that hold two deliveries' engines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from fakes.services.prometheus import prometheus, written_down

from gates.adapters.prometheus import PrometheusSource
from gates.evidence.batch import ArmName
from gates.model import ArmKey
from pipelines.adapters.series import ServedByPrometheus
from tidegate.core.metrics import MetricSource, PresetName

SCRAPES = 16
INTERVAL = 15
STABLE = ArmKey(region="eu-west-1", role="stable", version="1")
CANARY = ArmKey(region="us-east-1", role="canary", version="2")
SHADOW = CANARY.model_copy(update={"role": "shadow"})


def scraped(
    begun: datetime, service: str, region: str, role: str, version: str, *, pod: str, **per_scrape: int
) -> list[str]:
    """An engine's counters by status class, `c5` for 5xx, growing by so much at each scrape."""
    own = {"service": service, "region": region, "role": role, "version": version, "pod": pod}
    target = own | {"job": "engines", "instance": pod}
    lines = []
    for number in range(SCRAPES):
        at = (begun + timedelta(seconds=INTERVAL * number)).timestamp()
        lines += [_line("up", target, 1, at), _line("process_start_time_seconds", target, begun.timestamp() - 900, at)]
        for status, each in per_scrape.items():
            asked = {"method": "POST", "handler": "/v1/chat/completions", "status": f"{status[1:]}xx"}
            lines.append(_line("http_requests_total", target | asked, 1000 + each * number, at))
        probed = {"method": "GET", "handler": "/v1/models", "status": "2xx"}
        lines.append(_line("http_requests_total", target | probed, 99 * number, at))
    return lines


def _line(name: str, labels: dict[str, str], value: float, at: float) -> str:
    told = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{told}}} {value} {at:.3f}"


@pytest.fixture(scope="module")
def begun() -> datetime:
    """Of the first scrape. Not when this module is read: Prometheus looks back five minutes from now."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=4)


@pytest.fixture(scope="module")
def urls(begun: datetime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Prometheus for each region; another delivery has the same versions in the same roles."""
    held = {
        "eu-west-1": [
            *scraped(begun, "support-llm", "eu-west-1", "stable", "1", pod="a", c2=30),
            *scraped(begun, "other-llm", "eu-west-1", "stable", "1", pod="z", c2=500, c5=500),
        ],
        "us-east-1": [
            *scraped(begun, "support-llm", "us-east-1", "canary", "2", pod="b", c2=9, c5=1),
            *scraped(begun, "support-llm", "us-east-1", "canary", "2", pod="c", c2=10, c4=2),
            *scraped(begun, "other-llm", "us-east-1", "canary", "2", pod="y", c2=700),
        ],
    }
    homes = {region: tmp_path_factory.mktemp(region) for region in held}
    for region, lines in held.items():
        # OpenMetrics wants the samples of one metric together, each series in order of time.
        written_down(homes[region], sorted(lines, key=lambda line: line.partition("{")[0]))
    with prometheus(homes["eu-west-1"]) as eu, prometheus(homes["us-east-1"]) as us:
        yield {"eu-west-1": eu, "us-east-1": us}


@pytest.fixture
def source(urls: dict[str, str]) -> PrometheusSource:
    return PrometheusSource(urls, sources=[MetricSource(preset=PresetName.VLLM)], service="support-llm")


@pytest.mark.parametrize("canary", [CANARY, SHADOW], ids=["users", "copies"])
def test_each_arm_is_read_from_its_regions_own_and_by_pod(
    source: PrometheusSource, begun: datetime, canary: ArmKey
) -> None:
    since = begun + timedelta(seconds=3 * INTERVAL)
    batch = source.batch(STABLE, canary, since, since + timedelta(seconds=10 * INTERVAL))
    found = {(pod.arm, pod.pod): (pod.requests, pod.errors, pod.refused) for pod in batch.arms}
    assert found == {
        (ArmName.STABLE, "a"): (300, 0, 0),
        (ArmName.CANARY, "b"): (100, 10, 0),
        (ArmName.CANARY, "c"): (120, 0, 20),
    }


async def test_a_fleet_knows_what_each_engine_answered(urls: dict[str, str]) -> None:
    labels = {"service": "support-llm", "region": "us-east-1"}
    served = ServedByPrometheus(urls["us-east-1"], lambda version: {**labels, "version": version})
    last = SCRAPES - 1
    assert await served.served("2") == {"b": 2000 + 10 * last, "c": 2000 + 12 * last}
    assert await served.served("9") == {}
