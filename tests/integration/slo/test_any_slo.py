"""Whatever SLO is valid: Prometheus accepts its rules, in every format it can be written in."""

from __future__ import annotations

import shutil
import subprocess
import tempfile

import pytest
from fakes.metrics.slos import MODES, in_format, slo_groups
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slo.model import SloGroup
from slo.outputs import rule_file
from slo.rules import rules_for
from slo.windows import windows_for

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")


@pytest.mark.timeout(900)  # promtool is started twenty times, and more when an example is made smaller
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slo_groups(), st.sampled_from(sorted(MODES)))
def test_prometheus_accepts_its_rules(group: SloGroup, spec: str) -> None:
    text = rule_file(rules_for(in_format(group, spec), windows_for(group.slos[0].window)))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        run = subprocess.run(
            ["promtool", "check", "rules", "--lint-fatal", file.name], capture_output=True, text=True, check=False
        )
    assert run.returncode == 0, run.stdout + run.stderr
