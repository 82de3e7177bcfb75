from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from slo.outputs import rule_file
from slo.rules import Rule, RuleGroup

GROUP = RuleGroup(name="g", rules=(Rule(record="r", expr="(a)\n/\n(b)\n", labels={"z": "1", "a": "yes"}),))


def test_the_header_says_what_to_change_instead() -> None:
    header = rule_file([GROUP]).splitlines()[:2]
    assert header[0] == "---"
    assert header[1].startswith("# Written by tidegate")


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_every_text_is_read_back(text: str) -> None:
    group = RuleGroup(name="g", rules=(Rule(record="r", expr="1", labels={"a": text}),))
    assert yaml.safe_load(rule_file([group])) == {"groups": [group.to_dict()]}
