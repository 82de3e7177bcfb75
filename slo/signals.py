"""Recording rules of the signals that gates and dashboards share: traffic, times, engines, money.

`signal_groups` is where to start. What counts as a request, an error and a refusal is said here too, by `requests`.
An error is what the service did wrong: an answer 5xx, a timeout, an answer that was cut off. A refusal is an answer
4xx, which the client brought about: no error, and no event of an availability SLO either, or a flood of refusals
would hide an outage.
"""

from __future__ import annotations

from datetime import timedelta

from slo.metrics import SERVICE, PrometheusMetric
from slo.metrics.exporters import GPU_UTILISATION, REGENERATED, RESPONSES, TIMEOUTS, TORN
from slo.metrics.vllm import (
    ACCEPTED_TOKENS,
    DRAFT_TOKENS,
    E2E,
    FINISHED,
    GENERATION_TOKENS,
    HTTP_REQUESTS,
    ITL,
    KV_CACHE_USAGE,
    PREEMPTIONS,
    PREFIX_CACHE_HITS,
    PREFIX_CACHE_QUERIES,
    PROMPT_TOKENS,
    QUEUE_TIME,
    RUNNING,
    TTFT,
    WAITING,
)
from slo.promql import ARM, Scope, labelled, nonzero, of_service, or_zero, sum_by
from slo.rules import Rule, RuleGroup, number
from slo.spec import CostSpec, CountedBy
from tidegate.core.model import Value

_CODE = "envoy_response_code"
_ANSWERED = (HTTP_REQUESTS.name, 'method="POST"', 'handler=~"/v1/.+"')
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


def requests(counted_by: CountedBy, scope: Scope) -> Requests:
    """Of all series in `scope`."""
    return _by_proxy(scope) if counted_by is CountedBy.PROXY else _by_engine(scope)


def _by_proxy(scope: Scope) -> Requests:
    """Envoy counts a request under the status of its headers; what broke later, it counts apart.

    Torn connections and timeouts hold what broke before the headers too, which is a 503 or 504 already. Of both
    numbers the greater is the number of errors; only 503s of an engine that was never reached can hide streams
    that were cut in the same window. Both counters are there from the start, at 0.
    """
    torn, late = scope.rate(TORN.name), scope.rate(TIMEOUTS.name)

    def responses(*codes: str) -> str:
        return scope.rate(RESPONSES.name, *codes)

    others = or_zero(responses(f'{_CODE}=~"5.."', f'{_CODE}!~"503|504"'), torn)
    broken = scope.greatest(scope.rate(RESPONSES.name, f'{_CODE}="503"', per=_CODE), torn)
    overdue = scope.greatest(scope.rate(RESPONSES.name, f'{_CODE}="504"', per=_CODE), late)
    failed = f"({others} + {broken} + {overdue})"
    return Requests(
        all=or_zero(responses(), torn),
        failed=failed,
        refused=or_zero(responses(f'{_CODE}=~"4.."'), torn),
        judged=scope.greatest(labelled(failed, "failed"), responses(f'{_CODE}!~"4.."')),
    )


def _by_engine(scope: Scope) -> Requests:
    """The API server counts a request when its answer has ended; behind a 200, only the engine knows of an error.

    An error of the engine before the headers is a 500 as well: of both numbers the greater is the number of errors.
    Aborted requests are none: an engine cannot tell a user who stops reading from a proxy that gives up.
    """
    broken = scope.rate(FINISHED.name, 'finished_reason="error"')

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


def traffic_rules(counted_by: CountedBy) -> dict[str, str]:
    """Queries by the name that they are recorded under.

    The share of errors is that of an availability SLO: refusals are neither bad nor good.
    """
    counted = requests(counted_by, _MINUTE)
    judged = "(tidegate:requests:rate1m - tidegate:refusals:rate1m)"
    judged = _MINUTE.greatest(labelled("tidegate:errors:rate1m", "failed"), judged)
    rules = {
        "requests:rate1m": counted.all,
        "errors:rate1m": counted.failed,
        "refusals:rate1m": counted.refused,
        "error_ratio:rate1m": f"tidegate:errors:rate1m / {nonzero(judged)}",
        "finish_reasons:rate1m": _MINUTE.rate(FINISHED.name, per="finished_reason"),
    }
    return rules | (_regenerations() if counted_by is CountedBy.PROXY else {})


def _regenerations() -> dict[str, str]:
    """Who sends an answer back is counted by the proxy; it is the version that gave the answer which is told here."""
    again = _FIVE_MINUTES.rate(REGENERATED.name, 'envoy_virtual_host="users"', 'role!=""')
    return {"regenerations:rate5m": or_zero(again, "tidegate:requests:rate1m")}


_TIMES = {"ttft": TTFT, "itl": ITL, "e2e": E2E, "queue": QUEUE_TIME}
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def time_rules() -> dict[str, str]:
    """Queries by the name that they are recorded under; without requests there is no quantile."""
    rules: dict[str, str] = {}
    for name, histogram in _TIMES.items():
        buckets = f"{name}_seconds_bucket:rate1m"
        rules[buckets] = _MINUTE.rate(f"{histogram.name}_bucket", per="le")
        for quantile, share in _QUANTILES.items():
            # Of no requests a quantile is NaN, which is not >= 0.
            rules[f"{name}_seconds:{quantile}_1m"] = f"histogram_quantile({share}, tidegate:{buckets}) >= 0"
    return rules


_ARM = ", ".join(ARM)


def engine_rules() -> dict[str, str]:
    """Queries by the name that they are recorded under."""
    return {
        "generation_tokens:rate1m": _MINUTE.rate(GENERATION_TOKENS.name),
        "prompt_tokens:rate1m": _MINUTE.rate(PROMPT_TOKENS.name),
        "preemptions:rate1m": _MINUTE.rate(PREEMPTIONS.name),
        "queue_depth:sum": sum_by(WAITING.name, ARM),
        "running:sum": sum_by(RUNNING.name, ARM),
        "kv_cache_usage:max": f"max by ({_ARM}) ({KV_CACHE_USAGE.name})",
        "prefix_cache_hit_ratio:rate5m": _share(PREFIX_CACHE_HITS, PREFIX_CACHE_QUERIES),
        "spec_decode_acceptance:rate5m": _share(ACCEPTED_TOKENS, DRAFT_TOKENS),
        "gpu_utilisation:avg": f"avg by ({_ARM}) ({GPU_UTILISATION.name})",
        # One process may have several data-parallel ranks, each with series of its own.
        "engines:count": f"count by ({_ARM}) (group by ({_ARM}, instance) ({RUNNING.name}))",
    }


def _share(part: PrometheusMetric, whole: PrometheusMetric) -> str:
    return f"{_FIVE_MINUTES.rate(part.name)} / {nonzero(_FIVE_MINUTES.rate(whole.name))}"


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


def signal_groups(*, service: str, counted_by: CountedBy, cost: CostSpec | None) -> tuple[RuleGroup, ...]:
    """All of one service, by region, role and version; those of money only when it is known what an engine costs."""
    groups = {
        "traffic": traffic_rules(counted_by),
        "times": time_rules(),
        "engines": engine_rules(),
        "money": money_rules(cost) if cost else {},
    }
    return tuple(
        RuleGroup(name=f"tidegate-{name}-{service}", rules=tuple(_rule(service, *rule) for rule in rules.items()))
        for name, rules in groups.items()
        if rules
    )


def _rule(service: str, name: str, query: str) -> Rule:
    # On what is read of no series, too: a budget is somebody's.
    return Rule(record=f"tidegate:{name}", expr=of_service(query, service), labels={SERVICE: service})
