"""What each format says, merged and named as Sloth merges and names it."""

from __future__ import annotations

from datetime import timedelta

from fakes.metrics.queries import read

from slo.model import SloGroup

PLAIN = """
version: prometheus/v1
service: chat
labels: {owner: serving, tier: "1"}
slos:
  - name: availability
    description: Answers come.
    objective: 99.9
    labels: {tier: "2"}
    sli:
      events:
        error_query: sum(rate(failed_total[{{.window}}]))
        total_query: sum(rate(all_total[{{ .window }}]))
    alerting:
      name: ChatAvailability
      labels: {team: a, severity: low}
      annotations: {runbook: one}
      page_alert: {labels: {severity: high}, annotations: {runbook: two}}
      ticket_alert: {disable: true}
"""

OBJECT = """
apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
metadata: {name: chat-slos, namespace: monitoring, labels: {release: a}, creationTimestamp: null}
spec:
  service: chat
  slos:
    - name: quality
      objective: 95
      sli: {raw: {errorRatioQuery: "1 - avg_over_time(score[{{.window}}])"}}
      alerting: {pageAlert: {disable: true}, ticketAlert: {disable: true}}
"""

OPENSLO = """
apiVersion: openslo/v1alpha
kind: SLO
metadata: {name: ttft, displayName: Time to first token}
spec:
  service: chat
  description: First words come soon.
  budgetingMethod: Occurrences
  objectives:
    - target: 0.9
      ratioMetrics: &counts
        good: &query {source: prometheus, queryType: promql, query: "rate(a[{{.window}}])"}
        total: *query
    - {target: 0.99, ratioMetrics: *counts}
"""


def one(text: str) -> SloGroup:
    (group,) = read(text, file="slos.yaml")
    return group


def test_a_window_is_the_documents_own_or_the_default() -> None:
    weeks = timedelta(days=28)
    spoken = OPENSLO.replace("  objectives:", "  timeWindows: [{unit: day, count: 7, isRolling: true}]\n  objectives:")
    assert {slo.window for slo in read(spoken, file="a", default_period=weeks)[0].slos} == {timedelta(days=7)}
    for text in (PLAIN, OBJECT, OPENSLO):
        assert {slo.window for slo in read(text, file="a", default_period=weeks)[0].slos} == {weeks}
        assert {slo.window for slo in one(text).slos} == {timedelta(days=30)}


def test_a_text_has_as_many_groups_as_documents() -> None:
    text = f"---\n{PLAIN}\n---\n# nothing here\n---\n{OBJECT}---\n{OPENSLO}"
    assert [group.spec for group in read(text, file="a")] == ["prometheus/v1", "sloth.slok.dev/v1", "openslo/v1alpha"]


def test_labels_are_texts_however_yaml_reads_them() -> None:
    (slo,) = one(PLAIN.replace('{owner: serving, tier: "1"}', "{shard: 2, urgent: true, share: 0.5}")).slos
    assert slo.labels == {"shard": "2", "urgent": "true", "share": "0.5", "tier": "2"}
    assert one(PLAIN.replace("labels: {owner", "labels: #{owner")).slos[0].labels == {"tier": "2"}
