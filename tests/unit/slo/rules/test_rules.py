from __future__ import annotations

from datetime import timedelta

import pytest

from slo.model import EventSli, Slo, SloGroup
from slo.rules import rules_for
from slo.windows import windows_for


def test_windows_of_another_period_are_a_bug_of_the_caller() -> None:
    slo = Slo(service="api", name="up", objective=99.9, sli=EventSli(error_query="a", total_query="b"))
    document = SloGroup(slos=(slo,), mode="cli-gen-prom", spec="prometheus/v1")
    with pytest.raises(ValueError, match="its windows are for"):
        rules_for(document, windows_for(timedelta(days=28)))
