"""SLOs in, Prometheus rules out: the rules that Sloth v0.16 makes of the same SLOs."""

from slo.rules.generate import RuleOptions, rules_for
from slo.rules.model import Rule, RuleGroup

__all__ = ["Rule", "RuleGroup", "RuleOptions", "rules_for"]
