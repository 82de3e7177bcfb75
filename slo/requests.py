"""Requests, errors and refusals in PromQL, as a proxy or as the engines count them.

An error is what the service did wrong: an answer 5xx, a timeout, an answer that was cut off. A refusal is an
answer 4xx, which the client brought about: no error, and no event of an availability SLO either, or a flood of
refusals would hide an outage.
"""

from __future__ import annotations

from slo.metrics.envoy import RESPONSES, TIMEOUTS, TORN
from slo.metrics.vllm import FINISHED, HTTP_REQUESTS
from slo.promql import Scope, marked, or_zero
from slo.spec import CountedBy
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
        judged=scope.greatest(marked(failed, "failed"), responses(f'{_CODE}!~"4.."')),
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
        judged=scope.greatest(marked(failed, "failed"), answers('status!="4xx"')),
    )
