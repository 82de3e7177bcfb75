from __future__ import annotations

from datetime import timedelta

import pytest

from slo.model import Alert, EventSli, Slo, SloGroup
from slo.rules import RuleGroup, RuleOptions, rules_for
from slo.windows import windows_for

EVENTS = EventSli(
    error_query='sum(rate(requests_total{code=~"5.."}[{{.window}}]))',
    total_query="sum(rate(requests_total[{{ .window }}]))",
)
ALERT = Alert(name="Down")
SLO = Slo(service="api", name="up", objective=99.9, sli=EVENTS, page=ALERT, ticket=ALERT, labels={"owner": "me"})


def groups_of(slo: Slo = SLO, **options: object) -> dict[str, RuleGroup]:
    document = SloGroup(slos=(slo,), mode="cli-gen-prom", spec="prometheus/v1")
    groups = rules_for(document, windows_for(slo.window), RuleOptions.model_validate(options))
    return {group.name.removeprefix("sloth-slo-").removesuffix("-api-up"): group for group in groups}


def test_an_interval_is_that_of_every_group() -> None:
    groups = groups_of(SLO.model_copy(update={"interval": timedelta(seconds=90)}))
    assert {group.to_dict()["interval"] for group in groups.values()} == {"1m30s"}


def test_windows_of_another_period_are_a_bug_of_the_caller() -> None:
    document = SloGroup(slos=(SLO,), mode="cli-gen-prom", spec="prometheus/v1")
    with pytest.raises(ValueError, match="its windows are for"):
        rules_for(document, windows_for(timedelta(days=28)))
