"""Recording rules of the signals that gates and dashboards share: traffic, times, engines, money.

`signal_groups` is where to start. What counts as a request, an error and a refusal is said here too, by `requests`.
An error is what the service did wrong: an answer 5xx, a timeout, an answer that was cut off. A refusal is an answer
4xx, which the client brought about: no error, and no event of an availability SLO either, or a flood of refusals
would hide an outage.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from slo import metrics
from slo.promql import Scope, labelled, matcher, nonzero, of_service, or_zero, series_of_others, sum_by
from slo.rules import Rule, RuleGroup, number
from slo.spec import CostSpec, CountedBy
from tidegate.core.metrics import MetricSignal, MetricSource, RequestSeries, source_of
from tidegate.core.model import Value

_CODE = "envoy_response_code"
_ANSWERED = (metrics.HTTP_REQUESTS.name, 'method="POST"', 'handler=~"/v1/.+"')
"""Health checks, scrapes and lists of models are nobody's requests."""


class Requests(Value):
    """Events a second, each a query; 0 rather than nothing wherever somebody counts."""

    all: str
    """With refusals."""
    failed: str
    refused: str
    judged: str
    """What an availability SLO judges: without refusals, and never fewer than the errors.

    A stream may be cut in a quiet window, long after its request was counted.
    """


_BY_PROXY = RequestSeries(
    metric=metrics.RESPONSES.name, status=_CODE, cut=metrics.TORN.name, timeouts=metrics.TIMEOUTS.name
)
"""Of the proxy in front of the engines of a fleet on this machine."""


def requests(counted_by: CountedBy, scope: Scope, sources: Sequence[MetricSource] = ()) -> Requests:
    """Of all series in `scope`; where there are `sources`, one of them says who counts."""
    if source := source_of(sources, MetricSignal.REQUESTS):
        series, theirs = source.request_series, scope.model_copy(update={"source": source})
        assert series is not None, "a source that tells of requests has a counter"
        engines = source.is_vllms_own(MetricSignal.REQUESTS) and MetricSignal.ENGINES in source.told
        return _by_engine(theirs) if engines else _by_status(theirs, series)
    return _by_status(scope, _BY_PROXY) if counted_by is CountedBy.PROXY else _by_engine(scope)


def _by_status(scope: Scope, series: RequestSeries) -> Requests:
    """A proxy counts a request under the status of its headers; what broke later, it counts apart, or nowhere.

    Broken connections and timeouts hold what broke before the headers too, which is a 503 or 504 already. Of both
    numbers the greater is the number of errors; only 503s of an engine that was never reached can hide streams
    that were cut in the same window. Both counters are there from the start, at 0.
    """
    code, of_users = series.status, tuple(matcher(*each) for each in series.match.items())

    def responses(*matchers: str, per: str | None = None) -> str:
        return scope.rate(series.metric, *matchers, *of_users, per=per)

    apart = {"503": series.cut, "504": series.timeouts}
    counters = {status: scope.rate(name) for status, name in apart.items() if name}
    there = next(iter(counters.values()), responses())
    other_codes = (f'{code}!~"{"|".join(counters)}"',) if counters else ()
    parts = [or_zero(responses(f'{code}=~"5.."', *other_codes), there)]
    parts += [
        scope.greatest(responses(f'{code}="{status}"', per=code), counter) for status, counter in counters.items()
    ]
    if series.broken:
        broken = (matcher(*each) for each in series.broken.items())
        parts.append(or_zero(responses(f'{code}!~"5.."', *broken), there))
    failed = f"({' + '.join(parts)})"
    return Requests(
        all=or_zero(responses(), there) if counters else responses(),
        failed=failed,
        refused=or_zero(responses(f'{code}=~"4.."'), there),
        judged=scope.greatest(labelled(failed, "failed"), responses(f'{code}!~"4.."')),
    )


def _by_engine(scope: Scope) -> Requests:
    """The API server counts a request when its answer has ended; behind a 200, only the engine knows of an error.

    An error of the engine before the headers is a 500 as well: of both numbers the greater is the number of errors.
    Aborted requests are none: an engine cannot tell a user who stops reading from a proxy that gives up.
    """
    broken = scope.rate(metrics.FINISHED.name, 'finished_reason="error"')

    def answers(*status: str) -> str:
        return scope.rate(*_ANSWERED, *status)

    failed = scope.greatest(scope.rate(*_ANSWERED, 'status="5xx"', per="status"), broken)
    return Requests(
        all=or_zero(answers(), broken),
        failed=failed,
        refused=or_zero(answers('status="4xx"'), broken),
        judged=scope.greatest(labelled(failed, "failed"), answers('status!="4xx"')),
    )


_MINUTE, _FIVE_MINUTES = Scope(window="1m"), Scope(window="5m")


def traffic_rules(counted_by: CountedBy, sources: Sequence[MetricSource] = ()) -> dict[str, str]:
    """Queries by the name that they are recorded under.

    The share of errors is that of an availability SLO: refusals are neither bad nor good.
    """
    engines = source_of(sources, MetricSignal.ENGINES)
    rules: dict[str, str] = {}
    if not sources or source_of(sources, MetricSignal.REQUESTS):
        counted = requests(counted_by, _MINUTE, sources)
        judged = "(tidegate:requests:rate1m - tidegate:refusals:rate1m)"
        judged = _MINUTE.greatest(labelled("tidegate:errors:rate1m", "failed"), judged)
        rules = {
            "requests:rate1m": counted.all,
            "errors:rate1m": counted.failed,
            "refusals:rate1m": counted.refused,
            "error_ratio:rate1m": f"tidegate:errors:rate1m / {nonzero(judged)}",
        }
    if not sources or engines:
        finished = _MINUTE.model_copy(update={"source": engines})
        rules["finish_reasons:rate1m"] = finished.rate(metrics.FINISHED.name, per="finished_reason")
    return rules


_TIMES = {
    "ttft": (MetricSignal.TTFT, metrics.TTFT),
    "itl": (MetricSignal.ITL, metrics.ITL),
    "e2e": (MetricSignal.E2E, metrics.E2E),
    "queue": (MetricSignal.QUEUE_TIME, metrics.QUEUE_TIME),
}
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def time_rules(sources: Sequence[MetricSource] = ()) -> dict[str, str]:
    """Queries by the name that they are recorded under; without requests there is no quantile."""
    rules: dict[str, str] = {}
    for name, (signal, histogram) in _TIMES.items():
        source = source_of(sources, signal)
        if sources and source is None:
            continue
        scope = _MINUTE.model_copy(update={"source": source})
        series = None if source is None or source.is_vllms_own(signal) else source.time_series(signal)
        if series is None:
            buckets, unit = f"{name}_seconds_bucket:rate1m", ""
            rules[buckets] = scope.rate(f"{histogram.name}_bucket", per="le")
        else:
            # Under another name: these have edges, and perhaps a unit, of their own.
            buckets, unit = f"{name}_source_bucket:rate1m", "" if series.seconds == 1 else f" * {series.seconds:g}"
            of_users = (matcher(*each) for each in series.match.items())
            rules[buckets] = scope.rate(f"{series.metric}_bucket", *of_users, per="le")
        for quantile, share in _QUANTILES.items():
            # Of no requests a quantile is NaN, which is not >= 0.
            rules[f"{name}_seconds:{quantile}_1m"] = f"histogram_quantile({share}, tidegate:{buckets}){unit} >= 0"
    return rules


def engine_rules(source: MetricSource | None = None) -> dict[str, str]:
    """Queries by the name that they are recorded under."""
    minute = _MINUTE.model_copy(update={"source": source})
    five = _FIVE_MINUTES.model_copy(update={"source": source})
    arm = ", ".join(minute.labels)
    rules = {
        "generation_tokens:rate1m": minute.rate(metrics.GENERATION_TOKENS.name),
        "prompt_tokens:rate1m": minute.rate(metrics.PROMPT_TOKENS.name),
        "preemptions:rate1m": minute.rate(metrics.PREEMPTIONS.name),
        "queue_depth:sum": sum_by(minute.level(metrics.WAITING.name), minute.labels),
        "running:sum": sum_by(minute.level(metrics.RUNNING.name), minute.labels),
        "kv_cache_usage:max": f"max by ({arm}) ({minute.level(metrics.KV_CACHE_USAGE.name)})",
        "prefix_cache_hit_ratio:rate5m": _share(five, metrics.PREFIX_CACHE_HITS, metrics.PREFIX_CACHE_QUERIES),
        "spec_decode_acceptance:rate5m": _share(five, metrics.ACCEPTED_TOKENS, metrics.DRAFT_TOKENS),
        # Of the slowest engine; one that had to compile is told apart from those that found their compile cache.
        "engine_start_seconds:max": f"max by ({arm}, compile_cache) ({minute.level(metrics.ENGINE_START.name)})",
        "engine_load_seconds:max": f"max by ({arm}, compile_cache) ({minute.level(metrics.ENGINE_LOAD.name)})",
        "gpu_utilisation:avg": f"avg by ({arm}) ({metrics.GPU_UTILISATION.name})",
        # One process may have several data-parallel ranks, each with series of its own.
        "engines:count": f"count by ({arm}) (group by ({arm}, instance) ({minute.level(metrics.RUNNING.name)}))",
    }
    if source is not None and not source.has_own_labels:
        # The exporter's series get an engine's labels from our own monitor alone.
        del rules["gpu_utilisation:avg"]
    return rules


def _share(scope: Scope, part: metrics.PrometheusMetric, whole: metrics.PrometheusMetric) -> str:
    return f"{scope.rate(part.name)} / {nonzero(scope.rate(whole.name))}"


MONTH = timedelta(days=30)
"""Over which a budget is meant."""


def money_rules(cost: CostSpec) -> dict[str, str]:
    """Queries by the name that they are recorded under, in the currency of `cost`."""
    rules = {
        "cost_per_hour:sum": f"tidegate:engines:count * {number(cost.per_engine_hour)}",
        # Of what is written, not of what is read: prompts are paid for with the answers.
        "cost_per_1k_tokens:rate1m": (
            "tidegate:cost_per_hour:sum / 3600 / ((tidegate:generation_tokens:rate1m > 0) / 1000)"
        ),
    }
    if cost.budget_per_month:
        rules["cost_budget_per_hour:sum"] = f"vector({number(cost.budget_per_month)}) / {number(_HOURS)}"
    return rules


_HOURS = MONTH / timedelta(hours=1)


def signal_groups(
    *, service: str, counted_by: CountedBy, cost: CostSpec | None, sources: Sequence[MetricSource] = ()
) -> tuple[RuleGroup, ...]:
    """All of one service, by region, role and version; those of money only when it is known what an engine costs.

    Of `sources` that do not tell something, there is no rule of it.
    """
    engines = source_of(sources, MetricSignal.ENGINES)
    known = not sources or engines is not None
    groups = {
        "traffic": traffic_rules(counted_by, sources),
        "times": time_rules(sources),
        "engines": engine_rules(engines) if known else {},
        "money": money_rules(cost) if cost and known else {},
    }
    theirs = series_of_others(sources)
    return tuple(
        RuleGroup(
            name=f"tidegate-{name}-{service}", rules=tuple(_rule(service, theirs, *rule) for rule in rules.items())
        )
        for name, rules in groups.items()
        if rules
    )


def _rule(service: str, theirs: frozenset[str], name: str, query: str) -> Rule:
    # On what is read of no series, too: a budget is somebody's.
    expr = of_service(query, service, but=theirs)
    return Rule(record=f"tidegate:{name}", expr=expr, labels={metrics.SERVICE: service})
