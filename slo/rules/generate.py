"""The rule groups of the SLOs of one document, in the order in which Sloth writes them."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from slo.model import Labels, Slo, SloGroup
from slo.rules.alerts import alert_rules
from slo.rules.metadata import metadata_rules
from slo.rules.model import Rule, RuleGroup
from slo.rules.sli import correction_rules, sli_rules
from slo.windows.model import Windows
from tidegate.core.model import Value


class RuleOptions(Value):
    """What a run asks of all its rules."""

    extra_labels: Labels = Field(default_factory=dict)
    """Added to everything recorded; they win over the SLO's own."""
    disable_recordings: bool = False
    """Alerts only: somebody else records."""
    disable_alerts: bool = False


_NOTHING_SPECIAL = RuleOptions()


def rules_for(group: SloGroup, windows: Windows, options: RuleOptions = _NOTHING_SPECIAL) -> tuple[RuleGroup, ...]:
    """Up to three groups for each SLO: shares of bad events, metadata, alerts; a group without rules is left out.

    Raises:
        ValueError: when an SLO's window is not the period of `windows`.
        UsageError: when a denominator-corrected SLO counts no events.
    """
    return tuple(found for slo in group.slos for found in _groups_of(slo, group, windows, options))


def _groups_of(slo: Slo, group: SloGroup, windows: Windows, options: RuleOptions) -> Iterator[RuleGroup]:
    if slo.window != windows.period:
        raise ValueError(f"{slo.id} is over {slo.window}, its windows are for {windows.period}")
    slo = slo.model_copy(update={"labels": {**slo.labels, **options.extra_labels}})
    parts: dict[str, tuple[Rule, ...]] = {}
    if not options.disable_recordings:
        parts["sli-recordings"] = sli_rules(slo, windows)
        corrections = correction_rules(slo, windows) if slo.denominator_corrected else ()
        parts["meta-recordings"] = metadata_rules(slo, group, windows) + corrections
    if not options.disable_alerts:
        parts["alerts"] = alert_rules(slo, windows)
    for part, rules in parts.items():
        if rules:
            yield RuleGroup(name=f"sloth-slo-{part}-{slo.id}", rules=rules, interval=slo.interval)
