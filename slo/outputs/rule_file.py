"""A rule file, as Prometheus' `rule_files` names it."""

from __future__ import annotations

from collections.abc import Iterable

from slo.outputs.layout import written
from slo.rules.model import RuleGroup


def rule_file(groups: Iterable[RuleGroup]) -> str:
    """One YAML document with all groups: of several, Prometheus would read the first and not tell."""
    return written({"groups": [group.to_dict() for group in groups]})
