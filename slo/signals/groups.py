"""The rule groups of all signals."""

from __future__ import annotations

from slo.rules.model import RuleGroup
from slo.spec import CostSpec, CountedBy


def signal_groups(*, counted_by: CountedBy, cost: CostSpec | None) -> tuple[RuleGroup, ...]:
    """All of them; those of cost only when it is known what an engine costs."""
    raise NotImplementedError
