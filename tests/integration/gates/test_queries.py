"""Series of a team in the real Prometheus, asked by each kind of gate: a good version passes, a worse one fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.services.prometheus import prometheus, written_down

from gates.adapters.prometheus import PrometheusSource
from gates.analyses.queries import Window
from gates.analyses.ratio import RatioGate
from gates.evidence.batch import ArmName, PodTrials
from gates.model import ArmKey, NoData
from tidegate.cli import main
from tidegate.core.errors import OutsideError

SCRAPE, SCRAPES, LOOK = 5, 240, timedelta(minutes=1)
AHEAD = 120
"""Scrapes after now, for those who look back from a moment that is later on a busy machine."""
STABLE, HEALTHY, WORSE = "6", "7", "8"
ARMS = 'version="{{.version}}"'
GATES: dict[str, dict[str, Any]] = {
    "ratio": {
        "trials": f"rated_total{{{ARMS}}}",
        "events": f'rated_total{{vote="down",{ARMS}}}',
        "max_increase": "5pp",
    },
    "quantile": {"buckets": f"tool_seconds_bucket{{{ARMS}}}", "unit": "s", "max_increase": "50%"},
    "mean": {"sum": f"cost_cents_sum{{{ARMS}}}", "count": f"cost_cents_count{{{ARMS}}}", "max_change": "30%"},
    "query": {"query": f"max(pool_usage{{{ARMS}}})", "max": 0.8},
}
PODS = [(STABLE, "a", 20, 1.0), (STABLE, "b", 20, 1.0), (HEALTHY, "c", 5, 1.0), (WORSE, "d", 5, 6.0)]
"""Version, pod, ratings between two scrapes, and how much worse everything is."""
EDGES = (0.1, 0.2, 0.4, 0.6, 0.9, 1.3, 2.0, 4.0, 8.0, 16.0)


@cache
def begun() -> int:
    """When the first scrape was, once it is asked for: the last ones are still to come."""
    return int(datetime.now(UTC).timestamp()) - SCRAPE * SCRAPES


def counted(rng: np.random.Generator, rate: int, worse: float) -> dict[str, np.ndarray]:
    """By series without the labels of a pod, its value at each scrape."""
    size = (SCRAPES + AHEAD, rate)
    down = (rng.random(size) < 0.05 * worse).sum(axis=1)
    seconds = rng.lognormal(-0.7, 0.5, size) * worse
    cost = (rng.gamma(4.0, 0.25, size) * worse).sum(axis=1)
    found = {'rated_total{vote="up"': rate - down, 'rated_total{vote="down"': down}
    found |= {f'tool_seconds_bucket{{le="{edge}"': (seconds <= edge).sum(axis=1) for edge in EDGES}
    found |= {'tool_seconds_bucket{le="+Inf"': np.full(SCRAPES + AHEAD, rate)}
    found |= {"tool_seconds_sum{": seconds.sum(axis=1), "tool_seconds_count{": np.full(SCRAPES + AHEAD, rate)}
    return found | {"cost_cents_sum{": np.round(cost, 3), "cost_cents_count{": np.full(SCRAPES + AHEAD, rate)}


def exported() -> Iterator[str]:
    """Each pod's series, scrape by scrape; the healthy one's process starts again after half of the time."""
    rng = np.random.default_rng(5)
    of_pods = {(version, pod): counted(rng, rate, worse) for version, pod, rate, worse in PODS}
    kinds = {"rated": "counter", "tool_seconds": "histogram", "cost_cents": "summary"}
    for family, kind in kinds.items():
        yield f"# TYPE {family} {kind}"
        for (version, pod), series in of_pods.items():
            for name, gained in series.items():
                if not name.startswith(family):
                    continue
                half = SCRAPES // 2 if version == HEALTHY else SCRAPES + AHEAD
                values = np.concatenate([np.cumsum(gained[:half]), np.cumsum(gained[half:])])
                more = "" if name.endswith("{") else ","
                labels = f'{name}{more}version="{version}",pod="{pod}"}}'
                yield from (f"{labels} {value:g} {begun() + SCRAPE * at}" for at, value in enumerate(values))
    yield "# TYPE pool_usage gauge"
    for version, pod, _, worse in PODS:
        labels = f'pool_usage{{version="{version}",pod="{pod}"}}'
        yield from (f"{labels} {0.15 * worse} {begun() + SCRAPE * at}" for at in range(SCRAPES + AHEAD))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("prometheus")
    written_down(home, exported())
    with prometheus(home) as address:
        yield address


@pytest.fixture(scope="module")
def queries(url: str) -> PrometheusSource:
    return PrometheusSource(url)


def arm(version: str) -> ArmKey:
    return ArmKey(region="eu", role="stable" if version == STABLE else "canary", version=version)


def windows() -> Sequence[Window]:
    count = int(SCRAPES * SCRAPE / LOOK.total_seconds())
    moments = [datetime.fromtimestamp(begun(), UTC) + LOOK * number for number in range(count)]
    return [Window(since, until) for since, until in pairwise(moments)]


IN_A_LOOK = LOOK // timedelta(seconds=SCRAPE)
"""Scrapes."""


def whole() -> Window:
    return Window(windows()[0].since, windows()[-1].until)


TRIALS, COST, BUCKETS = GATES["ratio"]["trials"], GATES["mean"]["sum"], GATES["quantile"]["buckets"]


def test_windows_that_touch_count_everything_once_also_over_a_restart(queries: PrometheusSource) -> None:
    found = [queries.counted(TRIALS, arm(HEALTHY), window)["c"] for window in windows()]
    assert set(found) == {5 * IN_A_LOOK}
    assert queries.counted(TRIALS, arm(STABLE), whole()) == dict.fromkeys("ab", 20 * IN_A_LOOK * len(windows()))
    costs = [queries.summed(COST, arm(HEALTHY), window)["c"] for window in windows()]
    assert sum(costs) == pytest.approx(queries.summed(COST, arm(HEALTHY), whole())["c"])
    assert np.mean(costs) == pytest.approx(5 * IN_A_LOOK, rel=0.1)
    buckets = [queries.distributed(BUCKETS, arm(HEALTHY), window)["c"] for window in windows()]
    assert {sum(each.counts) for each in buckets} == {5 * IN_A_LOOK} and buckets[0].edges == EDGES
    at_once = queries.distributed(BUCKETS, arm(HEALTHY), whole())["c"]
    assert at_once.counts == tuple(map(sum, zip(*(each.counts for each in buckets), strict=True)))


def test_what_is_counted_as_good_leaves_the_rest_as_events(queries: PrometheusSource) -> None:
    of_events = RatioGate.model_validate(GATES["ratio"])
    rest = of_events.model_copy(update={"events": None, "good": f'rated_total{{vote="up",{ARMS}}}'})
    found = of_events.of_arm(queries, ArmName.CANARY, arm(WORSE), whole())
    assert not isinstance(found, NoData) and isinstance(found[0], PodTrials) and found[0].events > 0
    assert rest.of_arm(queries, ArmName.CANARY, arm(WORSE), whole()) == found


def test_what_is_not_there_is_no_zero(queries: PrometheusSource) -> None:
    for read in (queries.counted, queries.summed, queries.distributed):
        assert read(BUCKETS, arm("9"), whole()) == {}
    value = queries.value("max(pool_usage{version='{{.version}}'})", arm("9"), whole())
    assert isinstance(value, NoData) and "Prometheus has nothing for max(pool_usage{version='9'})" in value.reason
    nothing = queries.value("vector(0) / 0", arm("9"), whole())
    assert isinstance(nothing, NoData) and "Prometheus answers nan to" in nothing.reason
    assert queries.value("count_over_time(pool_usage{pod='a'}[{{.window}}])", arm(STABLE), windows()[9]) in (
        IN_A_LOOK,
        IN_A_LOOK + 1,
    )


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda there, key: there.counted(COST, key, whole()), "a count that is no whole number"),
        (
            lambda there, key: there.distributed(TRIALS, key, whole()),
            "returns a series without a bucket edge in its label le",
        ),
        (lambda there, key: there.value("pool_usage", key, whole()), "gives 4 series"),
        (lambda there, key: there.value("nonsense(", key, whole()), "refused nonsense("),
        (lambda _, key: PrometheusSource("http://127.0.0.1:9").counted(TRIALS, key, whole()), "127.0.0.1:9"),
    ],
)
def test_what_is_not_what_its_name_says_is_refused(
    queries: PrometheusSource, ask: Callable[[PrometheusSource, ArmKey], object], problem: str
) -> None:
    with pytest.raises(OutsideError, match=problem.replace("(", r"\(")):
        ask(queries, arm(STABLE))


@pytest.mark.parametrize(("version", "code"), [(HEALTHY, 0), (WORSE, 1), ("9", 3)])
def test_a_file_of_gates_asks_them_too(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, code: int
) -> None:
    asked = {kind: {"kind": kind, **settings} for kind, settings in GATES.items()}
    named = {f"my-{kind}": settings for kind, settings in asked.items()}
    gates = {"budget": {"poll_interval": "1m"}, **named}
    (tmp_path / "gates.yaml").write_text(json.dumps({"apiVersion": "tidegate/v1", "kind": "Gates", "gates": gates}))
    versions = ["--region", "eu", "--stable", STABLE, "--canary", version]
    command = ["gate", "check", str(tmp_path / "gates.yaml"), "--prometheus", url, "--since", "19m", *versions]
    assert main([*command, "-o", "json"]) == code
    told = {each["gate"]: each["outcome"] for each in json.loads(capsys.readouterr().out)["verdicts"]}
    if version == HEALTHY:
        assert told == dict.fromkeys(named, "pass")
    elif version == "9":
        assert told == dict.fromkeys(named, "inconclusive")
    else:
        assert "fail" in told.values() and "pass" not in told.values()


TRACES = "{mine: {kind: mean, assessments: {name: helpful, experiment: chat, tags: {served: '{{.version}}'}}}}"


@pytest.mark.parametrize(
    ("gates", "told"),
    {
        "{agreement: {}}": "gates.agreement: found a gate on pairs of answers, which no metric",
        TRACES: "gates.mine.assessments: found assessments; expected counters: a delivery alone asks its MLflow",
    }.items(),
)
def test_what_no_metric_holds_is_refused_where_a_prometheus_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gates: str, told: str
) -> None:
    (tmp_path / "gates.yaml").write_text(f"apiVersion: tidegate/v1\nkind: Gates\ngates: {gates}\n")
    asked = ("--prometheus", "http://127.0.0.1:9", "--stable", STABLE, "--canary", HEALTHY)
    assert main(["gate", "check", str(tmp_path / "gates.yaml"), *asked]) == 2
    assert f"gates.yaml:3: {told}" in capsys.readouterr().err
