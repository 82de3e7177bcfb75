"""The alert that a region's users are on another version than the registry says.

After a delivery both say the same. They differ while one is under way, which is no fault; and when somebody moves an
alias by hand, when a GitOps tool writes an old image back, or when a delivery died between two waves.
"""

from __future__ import annotations

from datetime import timedelta

from slo.metrics import ALIAS, RUNNING_DELIVERY, SERVICE
from slo.rules import SLOTH_SERVICE, SLOTH_SEVERITY, SLOTH_SLO, Rule, RuleGroup
from tidegate.core.units import prometheus_duration

RUNBOOK = "docs/guides/slo-export.md#registry-and-region-disagree"
"""In tidegate's documentation."""
NAME = "RegistryAndRegionDisagree"


def agreement_rules(service: str, alias: str, hold: timedelta) -> RuleGroup:
    """One alert for each region and version that users are on and `alias` does not mean.

    Nothing is said while the registry is silent, while `tidegate serve` is not scraped, and during a delivery.

    Args:
        service: the delivery's name.
        alias: of the registry, for the version in production.
        hold: longer than a delivery takes from its first promoted region to the moment at which it moves the alias.
    """
    ours = f'{SERVICE}="{service}"'
    stable = f'group by ({SERVICE}, region, version) (tidegate:engines:count{{{ours}, role="stable"}})'
    meant = f'{ALIAS.name}{{{ours}, alias="{alias}"}}'
    # One value for each service: two servers that look at different moments may name two versions for a moment.
    champion = (
        f"topk by ({SERVICE}) (1, group by ({SERVICE}, champion) ("
        f'label_replace({meant}, "champion", "$1", "version", "(.+)")))'
    )
    expression = (
        f"(({stable} unless on ({SERVICE}, version) {meant})\n"
        f"* on ({SERVICE}) group_left (champion) {champion})\n"
        f"unless on ({SERVICE}) ({RUNNING_DELIVERY.name}{{{ours}}} == 1)"
    )
    region, version, named = (f"{{{{ $labels.{label} }}}}" for label in ("region", "version", "champion"))
    rule = Rule(
        alert="".join(word.capitalize() for word in service.split("-")) + NAME,
        expr=expression,
        hold=hold,
        labels={SLOTH_SERVICE: service, SLOTH_SLO: "registry", SLOTH_SEVERITY: "ticket"},
        annotations={
            "summary": f"{service} in {region}: users are on version {version}, the registry says {named}",
            "description": (
                f"Stable engines in {region} serve version {version}, and {alias} has meant version {named} for "
                f"{prometheus_duration(hold)} or longer, with no delivery under way. Somebody moved one of them."
            ),
            "runbook": RUNBOOK,
        },
    )
    return RuleGroup(name=f"tidegate-registry-{service}", rules=(rule,))
