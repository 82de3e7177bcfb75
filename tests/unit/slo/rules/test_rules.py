from __future__ import annotations

from datetime import timedelta

import pytest

from slo.model import Alert, EventSli, RawSli, Slo, SloGroup
from slo.rules import Rule, RuleGroup, RuleOptions, rules_for
from slo.windows import windows_for
from tidegate.core.errors import UsageError

EVENTS = EventSli(
    error_query='sum(rate(requests_total{code=~"5.."}[{{.window}}]))',
    total_query="sum(rate(requests_total[{{ .window }}]))",
)
ALERT = Alert(name="Down")
SLO = Slo(service="api", name="up", objective=99.9, sli=EVENTS, page=ALERT, ticket=ALERT, labels={"owner": "me"})
MINE = '{sloth_id="api-up", sloth_service="api", sloth_slo="up"}'


def groups_of(slo: Slo = SLO, **options: object) -> dict[str, RuleGroup]:
    document = SloGroup(slos=(slo,), mode="cli-gen-prom", spec="prometheus/v1")
    groups = rules_for(document, windows_for(slo.window), RuleOptions.model_validate(options))
    return {group.name.removeprefix("sloth-slo-").removesuffix("-api-up"): group for group in groups}


def by_name(group: RuleGroup) -> dict[str, Rule]:
    return {rule.record or rule.alert: rule for rule in group.rules}


def test_every_window_is_recorded_once_and_the_period_from_the_shortest() -> None:
    rules = by_name(groups_of()["sli-recordings"])
    assert list(rules) == [
        f"slo:sli_error:ratio_rate{window}" for window in ("5m", "30m", "1h", "2h", "6h", "1d", "3d", "30d")
    ]
    assert rules["slo:sli_error:ratio_rate2h"].expr == (
        '(sum(rate(requests_total{code=~"5.."}[2h])))\n/\n(sum(rate(requests_total[2h])))\n'
    )
    assert f"sum_over_time(slo:sli_error:ratio_rate5m{MINE}[30d])" in rules["slo:sli_error:ratio_rate30d"].expr
    assert rules["slo:sli_error:ratio_rate2h"].labels == {
        "owner": "me",
        "sloth_id": "api-up",
        "sloth_service": "api",
        "sloth_slo": "up",
        "sloth_window": "2h",
    }


def test_four_weeks_have_prometheus_name_for_them() -> None:
    rules = by_name(groups_of(SLO.model_copy(update={"window": timedelta(days=28)}))["sli-recordings"])
    assert "slo:sli_error:ratio_rate4w" in rules


def test_a_raw_query_is_taken_as_it_is() -> None:
    raw = SLO.model_copy(update={"sli": RawSli(error_ratio_query="1 - avg_over_time(up[{{.window}}])")})
    assert groups_of(raw)["sli-recordings"].rules[0].expr == "(1 - avg_over_time(up[5m]))"


def test_metadata_says_what_was_promised_and_where() -> None:
    rules = by_name(groups_of()["meta-recordings"])
    assert rules["slo:objective:ratio"].expr == "vector(0.9990000000000001)"
    assert rules["slo:time_period:days"].expr == "vector(30)"
    assert rules["slo:period_error_budget_remaining:ratio"].expr == f"1 - slo:period_burn_rate:ratio{MINE}"
    said = rules["sloth_slo_info"].labels
    assert (said["sloth_objective"], said["sloth_mode"], said["sloth_spec"]) == (
        "99.9",
        "cli-gen-prom",
        "prometheus/v1",
    )


def test_a_corrected_slo_weighs_each_window_by_its_traffic() -> None:
    groups = groups_of(SLO.model_copy(update={"denominator_corrected": True}))
    weights = by_name(groups["meta-recordings"])
    assert weights["slo:numerator_correction:ratio5m"].expr == (
        "(sum(rate(requests_total[5m])))/(sum(rate(requests_total[30d])))"
    )
    assert "slo:numerator_correction:ratio30d" not in weights
    assert f"slo:numerator_correction:ratio5m{MINE}\n* on()" in groups["sli-recordings"].rules[0].expr


def test_a_share_cannot_be_corrected_for_traffic_it_does_not_know() -> None:
    raw = RawSli(error_ratio_query="up[{{.window}}]")
    with pytest.raises(UsageError, match="api-up is denominator-corrected but counts no events"):
        groups_of(SLO.model_copy(update={"sli": raw, "denominator_corrected": True}))


def test_an_alert_compares_with_the_budget_times_the_speed() -> None:
    page, ticket = groups_of()["alerts"].rules
    assert f"slo:sli_error:ratio_rate5m{MINE} > (14.4 * 0.0009999999999999432)" in page.expr
    assert f"slo:sli_error:ratio_rate3d{MINE} > (1 * 0.0009999999999999432)" in ticket.expr
    assert (page.labels, ticket.labels) == ({"sloth_severity": "page"}, {"sloth_severity": "ticket"})


def test_the_persons_own_words_win() -> None:
    mine = Alert(name="Mine", labels={"sloth_severity": "loud"}, annotations={"summary": "it is down"})
    (rule, _) = groups_of(SLO.model_copy(update={"page": mine}))["alerts"].rules
    assert (rule.labels["sloth_severity"], rule.annotations["summary"]) == ("loud", "it is down")
    assert rule.annotations["title"].startswith("(page) ")


def test_what_is_disabled_is_left_out_with_its_group() -> None:
    assert list(groups_of(SLO.model_copy(update={"page": None, "ticket": None}))) == [
        "sli-recordings",
        "meta-recordings",
    ]
    assert list(groups_of(disable_recordings=True)) == ["alerts"]
    assert list(groups_of(disable_alerts=True)) == ["sli-recordings", "meta-recordings"]


def test_extra_labels_are_on_everything_recorded_and_on_no_alert() -> None:
    groups = groups_of(extra_labels={"owner": "us"})
    recorded = (*groups["sli-recordings"].rules, *groups["meta-recordings"].rules)
    assert {rule.labels["owner"] for rule in recorded} == {"us"}
    assert all("owner" not in rule.labels for rule in groups["alerts"].rules)


def test_an_interval_is_that_of_every_group() -> None:
    groups = groups_of(SLO.model_copy(update={"interval": timedelta(seconds=90)}))
    assert {group.to_dict()["interval"] for group in groups.values()} == {"1m30s"}


def test_windows_of_another_period_are_a_bug_of_the_caller() -> None:
    document = SloGroup(slos=(SLO,), mode="cli-gen-prom", spec="prometheus/v1")
    with pytest.raises(ValueError, match="its windows are for"):
        rules_for(document, windows_for(timedelta(days=28)))
