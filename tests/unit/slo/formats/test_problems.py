"""Whatever is wrong with SLOs is told at once, where it is, and with what would be right."""

from __future__ import annotations

import pytest
from fakes.metrics.queries import read

from slo.formats.read import read_all
from tidegate.core.spec import SpecError

EVENTS = "{events: {error_query: 'rate(a[{{.window}}])', total_query: 'rate(b[{{.window}}])'}}"
RAW = "{raw: {error_ratio_query: 'avg_over_time(a[{{.window}}])'}}"
OPEN = """apiVersion: openslo/v1alpha
kind: SLO
metadata: {name: ttft}
spec:
  service: chat
  timeWindows: [{unit: Week, count: 4}]
  objectives:
    - target: 99
      ratioMetrics: {good: {source: datadog, queryType: promql, query: a}}
"""


def plain(slo: str, *, service: str = "chat") -> str:
    return f"version: prometheus/v1\nservice: {service}\nslos:\n  - {slo}\n"


def slo(*, name: str = "one", objective: object = 99, sli: str = EVENTS, alerting: str = "{name: A}") -> str:
    return f"{{name: {name}, objective: {objective}, sli: {sli}, alerting: {alerting}}}"


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as refused:
        read(text, file="s.yaml")
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (slo(name="-a"), "slos[0].name: found '-a'; expected letters, digits, '.', '_' and '-'"),
        (slo(objective=0), "slos[0].objective: found 0; expected greater than 0"),
        (slo(objective=100.1), "slos[0].objective: found 100.1; expected less than or equal to 100"),
        (slo(objective="'99'"), "slos[0].objective: found '99'; expected a valid number"),
        (slo(sli="{}"), "slos[0].sli: found nothing; expected exactly one of events, raw"),
        (
            slo(sli=EVENTS[:-1] + ", " + RAW[1:]),
            "slos[0].sli: found events and raw; expected exactly one of events, raw",
        ),
        (slo(sli=EVENTS.replace("b[", "a[")), "slos[0].sli.events: found the same query for errors and for the total"),
        (slo(sli=RAW.replace("{{.window}}", "5m")), "expected PromQL with {{.window}} where its range goes"),
        (slo(alerting="{}"), "slos[0].alerting: found alerts without a name; expected a name, or page and ticket"),
        (slo(alerting="{name: A, labels: {a-b: c}}"), "slos[0].alerting.labels.a-b: found 'a-b'; expected a key of"),
        (slo(alerting="{name: A, labels: {__name__: c}}"), "expected another key: __name__ is the metric's own name"),
        (slo(alerting="{name: A, page_alert: {labels: {a: ''}}}"), "page_alert.labels.a: found ''; expected some text"),
        (slo(alerting="{name: A, pageAlert: {}}"), "found an unknown key; expected page_alert (the nearest known key)"),
        (slo()[:-1] + ", plugins: {chain: [{id: x/v1}]}}", "slos[0].plugins: found an unknown key"),
    ],
)
def test_one_thing_wrong_is_one_problem(text: str, problem: str) -> None:
    (found,) = problems(plain(text))
    assert found.startswith("s.yaml:4: slos[0]")
    assert problem in found


def test_every_document_tells_all_its_problems_at_its_own_lines() -> None:
    text = f"{plain(slo(objective=101, alerting='{}'), service='-a')}---\n{OPEN}---\nkind: Pod\n"
    assert [problem.split(": found")[0] for problem in problems(text)] == [
        "s.yaml:2: service",
        "s.yaml:4: slos[0].objective",
        "s.yaml:4: slos[0].alerting",
        "s.yaml:11: spec.timeWindows[0]",
        "s.yaml:13: spec.objectives[0].target",
        "s.yaml:14: spec.objectives[0].ratioMetrics.good.source",
        "s.yaml:14: spec.objectives[0].ratioMetrics.good.query",
        "s.yaml:14: spec.objectives[0].ratioMetrics.total",
        "s.yaml:16",
    ]


@pytest.mark.parametrize("text", ["", "# only words\n", "- a\n", "a: [", "kind: SLO\n", "a: \x07"])
def test_what_is_no_spec_is_told_in_one_line(text: str) -> None:
    assert len(problems(text)) == 1


def test_no_two_slos_have_one_id_whatever_files_they_are_in() -> None:
    twice = f"{plain(slo(name='b-cd'))}---\n{plain(slo(name='cd'), service='chat-b')}"
    with pytest.raises(SpecError) as refused:
        read_all({"a.yaml": plain(slo(name="b-cd")), "b.yaml": twice})
    assert [str(problem) for problem in refused.value.problems] == [
        "b.yaml:4: slos[0].name: found the id chat-b-cd twice; expected it once; it is in a.yaml:4",
        "b.yaml:9: slos[0].name: found the id chat-b-cd twice; expected it once; it is in a.yaml:4",
    ]
