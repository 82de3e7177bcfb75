"""Rule groups as files: Prometheus' own, or objects of the Prometheus operator."""

from slo.outputs.prometheus_rule import prometheus_rule
from slo.outputs.rule_file import rule_file

__all__ = ["prometheus_rule", "rule_file"]
