"""A share that somebody counts in Prometheus: what can be counted, what is planned, and what is no number."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from fakes.delivery.world import a_spec
from fakes.metrics.asked import FakeQueries, plan_of

from gates.analyses.queries import Window, WithQueries, filled
from gates.analyses.ratio import RatioGate, TrialsTest
from gates.evidence.batch import ArmName
from gates.evidence.names import is_selector
from gates.model import ArmKey
from gates.planning.forecast import forecasts
from gates.traffic import Exposure
from pipelines.spec.delivery import Delivery
from tidegate.core.spec import SpecError, parse_spec
from tidegate.testing import FakeEvidence

TRIALS = 'rated_total{version="{{.version}}"}'
EVENTS = 'rated_total{vote="down",version="{{.version}}"}'
THUMBS: dict[str, Any] = {"kind": "ratio", "trials": TRIALS, "events": EVENTS, "max_increase": "5pp"}


def test_a_plan_counts_in_requests_of_users() -> None:
    def needs(**settings: object) -> int | None:
        terms = plan_of({"thumbs": {**THUMBS, **settings}}, share=0.2)
        (told,) = forecasts(terms, Exposure(requests_per_second=20, percent=10, within_seconds=36000))
        assert told.gate == "thumbs" and told.scale == "points"
        return told.canary_requests_to_pass

    often, rarely = needs(usual=0.05), needs(usual=0.05, per_request=0.05)
    assert often and rarely and 10 < rarely / often < 30


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"trials": "sum(rated_total)"}, "a label that tells the arms apart"),
        ({"trials": 'sum(rated_total{role="{{.role}}"})'}, "one counter with its labels"),
        ({"trials": 'rated_total{role="{{.arm}}"}'}, "only these open places: region, role, version; not arm"),
        ({"events": None}, "found both or none of events, good; expected exactly one of them"),
        ({"tolerance": "5pp"}, "tolerance: found 5pp; expected less than max_increase, 5pp"),
    ],
)
def test_what_cannot_be_counted_is_refused(changed: dict[str, Any], problem: str) -> None:
    given = a_spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    given["gates"]["thumbs"] = {name: value for name, value in {**THUMBS, **changed}.items() if value is not None}
    with pytest.raises(SpecError, match=r"gates\.thumbs") as raised:
        parse_spec(json.dumps(given), Delivery, file="delivery.yaml")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('a{b=~"5[0-9]{2}",c="}"}', True),
        ("a:b {b='}', c=~`\\d{3}`, }", True),
        ('{"http.requests", "a.b"!~"x"} # of users', True),
        ('a{b="\\"}"}', True),
        ('a{b="c"} or b{}', False),
        ('a{b="c"}[5m]', False),
        ('a{b="c",,}', False),
        ("a{b=c}", False),
        ("a{" + "#" * 5000, False),
    ],
)
def test_a_selector_is_what_promql_reads_as_one(text: str, is_one: bool) -> None:
    assert is_selector(text) is is_one


def test_a_label_cannot_end_the_selector() -> None:
    arm = ArmKey(region="eu", role="canary", version='7"} or vector(1) #')
    assert filled(TRIALS, arm) == 'rated_total{version="7\\"} or vector(1) #"}'
    other = ArmKey(region="eu", role="canary", version="7'`")
    assert filled("""a{b='{{.version}}',c=~`\\d{{.version}}`}""", other) == """a{b='7\\'`',c=~"\\\\d7'`"}"""


def test_one_arm_without_its_counter_is_missing_and_not_zero() -> None:
    class Half(FakeQueries):
        def counted(self, selector: str, arm: ArmKey, window: Window) -> dict[str, int]:
            return {} if arm.role == "canary" else {"": 200}

    gate = RatioGate.model_validate({name: value for name, value in THUMBS.items() if name != "kind"})
    source = WithQueries(FakeEvidence(), Half(), {"thumbs": gate})
    arms = (ArmKey(region="eu", role="stable", version="1"), ArmKey(region="eu", role="canary", version="2"))
    batch = source.batch(*arms, datetime.fromtimestamp(0), datetime.fromtimestamp(10))
    assert [pod.arm for pod in batch.ratios["thumbs"]] == [ArmName.STABLE]
    test = TrialsTest("thumbs", gate, temper=True)
    test.take(batch, 10)
    assert (test.seen, test.describe()) == (
        0,
        'no trials of the canary: Prometheus has no samples of rated_total{version="2"} in this window',
    )
