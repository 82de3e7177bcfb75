"""Whatever is wrong with SLOs is told at once, where it is, and with what would be right."""

from __future__ import annotations

from pathlib import Path

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
        (slo(sli="{}"), "slos[0].sli: found no SLI; expected either events or raw"),
        (slo(sli=EVENTS[:-1] + ", " + RAW[1:]), "slos[0].sli: found both kinds of SLI; expected either events or raw"),
        (slo(sli=EVENTS.replace("b[", "a[")), "slos[0].sli.events: found the same query for errors and for the total"),
        (slo(sli=RAW.replace("{{.window}}", "5m")), "expected PromQL with {{.window}} where its range goes"),
        (slo(sli="{plugin: {id: x}}"), "slos[0].sli.plugin: found an SLI plugin, which is code that only Sloth runs"),
        (slo(alerting="{}"), "slos[0].alerting: found alerts without a name; expected a name, or page and ticket"),
        (slo(alerting="{name: A, labels: {a-b: c}}"), "slos[0].alerting.labels.a-b: found 'a-b'; expected a key of"),
        (slo(alerting="{name: A, labels: {__name__: c}}"), "expected another key: __name__ is the metric's own name"),
        (slo(alerting="{name: A, page_alert: {labels: {a: ''}}}"), "page_alert.labels.a: found ''; expected some text"),
        (slo(alerting="{name: A, pageAlert: {}}"), "found an unknown key; expected page_alert (the nearest known key)"),
        (
            slo()[:-1] + ", plugins: {chain: [{id: x/v1}]}}",
            "plugins.chain[0].id: found 'x/v1'; expected sloth",
        ),
        (
            slo()[:-1] + ", plugins: {overridePrevious: true, chain: []}}",
            "plugins.overridePrevious: found an unknown key",
        ),
        (
            slo(sli=RAW)[:-1] + ", plugins: {chain: [{id: sloth.dev/contrib/denominator_corrected_rules/v1}]}}",
            "slos[0]: found a correction of the denominator over a raw SLI; expected an SLI of events",
        ),
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


ODD = "1 - histogram_share(0.2, rate(a[{{.window}}]))"


UNKNOWN = """#!/bin/sh
for file; do :; done
/bin/grep -q histogram_share $file || exit 0
echo 'r.json: 1:9: group "asked": could not parse expression: 1:5: parse error: no such function' >&2
exit 1
"""
OBJECT = """apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
metadata: {name: a}
spec:
  service: chat
  slos:
"""
OF_GOOD = f"query: '{ODD}'}}, total: {{source: prometheus, queryType: promql, query: 'b[{{{{.window}}}}]'}}"
OTHERS = OPEN.replace("Week, count: 4", "Day, count: 30").replace("99", "0.99").replace("datadog", "prometheus")
RATIO = RAW.replace("avg_over_time(a[{{.window}}])", ODD)


@pytest.fixture
def promtool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Knows no function of MetricsQL, and takes all else."""
    (tmp_path / "promtool").write_text(UNKNOWN)
    (tmp_path / "promtool").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("promtool")
@pytest.mark.parametrize(
    "text",
    [
        plain(slo(sli=RATIO)),
        f"{OBJECT}    - {slo(sli=RATIO.replace('error_ratio_query', 'errorRatioQuery'))}",
        OTHERS.replace("query: a}", OF_GOOD),
    ],
)
def test_what_prometheus_takes_for_no_promql_is_refused_in_its_words(text: str) -> None:
    (found,) = problems(text)
    assert found.endswith(f": found '{ODD}'; expected PromQL; Prometheus says: 1:5: parse error: no such function")


@pytest.mark.usefixtures("promtool")
def test_what_prometheus_takes_the_library_does_not_refuse() -> None:
    read(plain(slo(sli=RAW.replace("a[{{.window}}]", "a[{{.window}}] anchored"))), file="s.yaml")


def test_without_promtool_what_the_library_does_not_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    read(plain(slo(sli=RATIO)), file="s.yaml")
    assert f"{ODD}: may be no PromQL" in caplog.text


def test_problems_of_all_files_are_told_together() -> None:
    with pytest.raises(SpecError) as refused:
        read_all({"a.yaml": "- a", "b.yaml": plain(slo(objective=0)), "c.yaml": plain(slo())})
    assert [problem.file for problem in refused.value.problems] == ["a.yaml", "b.yaml"]
