"""What queries read, and which answers they count."""

from __future__ import annotations

import pytest

from rollouts.doctor.queries import counts_failures, counts_refusals, metrics_of, selectors_of


@pytest.mark.parametrize(
    ("query", "failures", "refusals"),
    [
        ('requests{code=~"5.."} / requests', True, False),
        ('requests{code="503"}', True, False),
        ('requests{code!~"5.."} / requests', True, False),
        ('requests{envoy_response_code_class="5"}', True, False),
        ('requests{status="5xx"}', True, False),
        ('requests{code=~"4.."}', False, True),
        ('requests{status="4xx"}', False, True),
        ('requests{code=~"[45].."}', True, True),
        ('requests{status=~"4xx|5xx"}', True, True),
        ('requests{code!~"2.."}', True, True),
        ('requests{code=~"2..|3.."} / requests', True, True),
        ('requests{code!~"4.."}', False, False),
        ('requests{path="/404"}', False, False),
        ("requests", False, False),
        ('requests{code=~"("}', False, False),
        ("sum(rate(", False, False),
    ],
)
def test_which_answers_a_query_tells_from_good_ones(query: str, failures: bool, refusals: bool) -> None:
    assert (counts_failures(query), counts_refusals(query)) == (failures, refusals)


def test_metrics_are_told_once_each_and_by_either_spelling() -> None:
    query = 'sum(rate(vllm:e2e_count[5m])) / sum(rate({__name__="all_requests"}[5m])) + vllm:e2e_count'
    assert metrics_of(query) == ("vllm:e2e_count", "all_requests")


def test_a_raw_string_is_read() -> None:
    assert metrics_of(r"rate(a{path=~`/[^/]+\.bin`}[5m])") == ("a",)


def test_what_is_no_promql_reads_nothing() -> None:
    assert selectors_of("sum(rate(") == ()
