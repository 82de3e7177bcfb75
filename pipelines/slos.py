"""The SLOs of a delivery: the rules that its fleet evaluates, and the gates that each of its stages asks."""

from __future__ import annotations

from datetime import timedelta

from gates.spec import Gates
from pipelines.slo_gate import Stage, burn_gate
from pipelines.spec import CanaryStage, Delivery, ShadowStage
from slo.catalogue import group_of
from slo.outputs import rule_file
from slo.rules import RuleGroup, rules_for
from slo.signals import signal_groups
from slo.windows import windows_for


def rules_of(spec: Delivery) -> str:
    """The rule file of a delivery's SLOs, and of the signals that its dashboards show."""
    signals = signal_groups(service=spec.metadata.name, counted_by=spec.counted_by, cost=spec.cost)
    return rule_file((*_slo_rules(spec), *signals))


def _slo_rules(spec: Delivery) -> tuple[RuleGroup, ...]:
    """SLO by SLO: each has the alert windows of its own period."""
    groups = [group_of([item], service=spec.metadata.name, counted_by=spec.counted_by) for item in spec.slos]
    return tuple(rules for group in groups for rules in rules_for(group, windows_for(group.slos[0].window)))


def gates_in(spec: Delivery, stage: ShadowStage | CanaryStage) -> Gates:
    """The delivery's gates as that stage asks them: the burn rate has the stage's own windows and events."""
    return gates_within(spec, stage.within, mirrored=isinstance(stage, ShadowStage))


def gates_within(spec: Delivery, within: timedelta, *, mirrored: bool = False) -> Gates:
    """As `gates_in`, of a stage that lasts so long; `mirrored` when its canary gets copies only."""
    burn = spec.gates.burn_rate
    if burn is None:
        return spec.gates
    stage = Stage(
        service=spec.metadata.name,
        within=within,
        look=spec.look,
        mirrored=mirrored,
        counted_by=spec.counted_by,
    )
    return spec.gates.model_copy(update={"burn_rate": burn_gate(burn, spec.slos, stage)})
