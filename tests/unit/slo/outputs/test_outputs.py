from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from slo.model import KubernetesNames
from slo.outputs import prometheus_rule, rule_file
from slo.rules import Rule, RuleGroup

GROUP = RuleGroup(name="g", rules=(Rule(record="r", expr="(a)\n/\n(b)\n", labels={"z": "1", "a": "yes"}),))


def test_a_rule_file_reads_well() -> None:
    assert rule_file([GROUP]).partition("\n\n")[2] == (
        "groups:\n"
        "- name: g\n"
        "  rules:\n"
        "  - record: r\n"
        "    expr: |\n"
        "      (a)\n"
        "      /\n"
        "      (b)\n"
        "    labels:\n"
        "      a: 'yes'\n"
        "      z: '1'\n"
    )


def test_the_header_says_what_to_change_instead() -> None:
    header = rule_file([GROUP]).splitlines()[:2]
    assert header[0] == "---"
    assert header[1].startswith("# Written by tidegate")


def test_long_expressions_are_not_folded() -> None:
    expression = " + ".join(["metric"] * 100)
    assert f"expr: {expression}\n" in rule_file([RuleGroup(name="g", rules=(Rule(record="r", expr=expression),))])


def test_a_prometheus_rule_keeps_names_and_is_found_as_sloths() -> None:
    names = KubernetesNames(name="chat", namespace="llm", labels={"team": "x"}, annotations={"why": "because"})
    found = yaml.safe_load(prometheus_rule([GROUP], names))
    assert found["apiVersion"] == "monitoring.coreos.com/v1"
    assert found["kind"] == "PrometheusRule"
    assert found["metadata"] == {
        "name": "chat",
        "namespace": "llm",
        "labels": {"app.kubernetes.io/component": "SLO", "app.kubernetes.io/managed-by": "sloth", "team": "x"},
        "annotations": {"why": "because"},
    }
    assert found["spec"] == {"groups": [GROUP.to_dict()]}


def test_objects_follow_each_other_in_one_file() -> None:
    both = prometheus_rule([GROUP], KubernetesNames(name="a")) + prometheus_rule([GROUP], KubernetesNames(name="b"))
    assert [found["metadata"]["name"] for found in yaml.safe_load_all(both)] == ["a", "b"]


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_every_text_is_read_back(text: str) -> None:
    group = RuleGroup(name="g", rules=(Rule(record="r", expr="1", labels={"a": text}),))
    assert yaml.safe_load(rule_file([group])) == {"groups": [group.to_dict()]}
