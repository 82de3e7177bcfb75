"""Whatever SLO a delivery promises: Prometheus accepts its rules and those of the signals."""

from __future__ import annotations

import shutil
import subprocess
import tempfile

import pytest
from fakes.metrics.slos import slo_specs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slo.catalogue import group_of
from slo.outputs import rule_file
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.spec import CostSpec, CountedBy, SloSpec
from slo.windows import windows_for

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")

COSTS = st.one_of(
    st.none(),
    st.builds(
        CostSpec,
        per_engine_hour=st.floats(0.001, 1e6),
        currency=st.just("EUR"),
        budget_per_month=st.one_of(st.none(), st.floats(1, 1e9)),
    ),
)


def accepted(groups: tuple[RuleGroup, ...]) -> str:
    """What promtool says against them; nothing when they are right."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(rule_file(groups))
        file.flush()
        run = subprocess.run(
            ["promtool", "check", "rules", "--lint-fatal", file.name], capture_output=True, text=True, check=False
        )
    return "" if run.returncode == 0 else run.stdout + run.stderr


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slo_specs(), st.sampled_from(CountedBy))
def test_prometheus_accepts_the_rules_of_any_promise(spec: SloSpec, counted_by: CountedBy) -> None:
    assert list(spec.all_contradictions()) == []
    group = group_of([spec], service="support-llm", counted_by=counted_by)
    assert accepted(rules_for(group, windows_for(spec.window))) == ""


@settings(max_examples=10, deadline=None)
@given(COSTS, st.sampled_from(CountedBy))
def test_prometheus_accepts_the_signals_at_any_cost(cost: CostSpec | None, counted_by: CountedBy) -> None:
    assert accepted(signal_groups(service="support-llm", counted_by=counted_by, cost=cost)) == ""
