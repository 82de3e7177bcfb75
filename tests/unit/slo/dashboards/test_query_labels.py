from __future__ import annotations

import pytest
from fakes.query_labels import read_labels

KNOWN = {
    "asked": frozenset({"region", "version", "role"}),
    "asked_bucket": frozenset({"region", "le"}),
    "budget": frozenset[str](),
    "slo": frozenset({"region", "slo"}),
}


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("asked", "region role version"),
        ("rate(asked[5m])", "region role version"),
        ("max_over_time((asked > 0)[1h:1m])", "region role version"),
        ("sum by (region) (asked)", "region"),
        ("sum without (role) (asked)", "region version"),
        ("sum(asked)", ""),
        ("-asked * 2 + 1", "region role version"),
        ("asked / on (region) group_left () sum by (region) (asked)", "region role version"),
        ("sum by (region) (asked) / on (region) group_right () asked", "region role version"),
        ("sum by (region) (asked) / on (region) slo", "region"),
        ("slo / on (region) group_left (version) asked", "region slo version"),
        ("asked / ignoring (role, version) group_left () sum by (region) (asked)", "region role version"),
        ("asked and on (region) slo", "region role version"),
        ("sum by (region) (asked) or slo", "region slo"),
        ("histogram_quantile(0.9, sum by (le, region) (asked_bucket))", "region"),
        ('label_replace(asked, "arm", "$1", "role", "(.*)")', "arm region role version"),
        ("sum(asked) / budget", ""),
        ("vector(1)", ""),
    ],
)
def test_labels_of_a_query_are_known_without_asking(query: str, labels: str) -> None:
    reading = read_labels(query, KNOWN)
    assert (" ".join(sorted(reading.labels)), reading.problems) == (labels, ())


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("sum(gone)", "nobody exports or records gone"),
        ('asked{zone="eu"}', "asked has no label zone"),
        ('rate(asked{le="1"}[5m])', "asked has no label le"),
        ("sum by (slo) (asked)", "is aggregated by, but there is no label slo"),
        ("asked / on (slo) slo", "is matched on, but one side has no label slo"),
        ("asked / slo", "the sides never meet: one has region, role, version, one region, slo"),
        ("asked / ignoring (role) slo", "the sides never meet: one has region, version, one region, slo"),
        ("sum(asked) / slo", "the sides never meet: one has no label, one region, slo"),
        ('label_replace(asked, "arm", "$1", "rule", "(.*)")', "is replaced from, but there is no label rule"),
    ],
)
def test_what_can_have_no_data_is_told(query: str, problem: str) -> None:
    assert read_labels(query, KNOWN).problems == (problem,)


def test_series_are_those_that_are_asked_for() -> None:
    assert read_labels("sum(asked) / ignoring (le) asked_bucket", KNOWN).series == {"asked", "asked_bucket"}


def test_no_promql_is_refused() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        read_labels("sum(asked", KNOWN)
