"""For how long registry and regions may differ because of a delivery, and whether regions tell their versions."""

from __future__ import annotations

from datetime import timedelta

from pipelines.spec.delivery import Delivery
from slo.registry import RegistryAgreement
from tidegate.core.metrics import MetricSignal, source_of

SLACK = timedelta(minutes=15)
"""For engines that start, smoke tests, and a look at the registry."""


def promotion_window(spec: Delivery) -> timedelta:
    """From the first region that is promoted to the alias that moves at the end, when every stage takes its whole time.

    Approvals and freezes are not in it: while they hold a delivery back, it is under way.
    """
    wave = spec.shadow.within if spec.shadow else timedelta()
    if spec.canary:
        wave += len(spec.canary.weights) * spec.canary.within
    waves = len(spec.regions.waves)
    return waves * (spec.regions.bake + SLACK) + (waves - 1) * wave


def agreement_of(spec: Delivery) -> RegistryAgreement | None:
    """The alert of a delivery; None where others' labels do not tell which version is stable."""
    engines = source_of(spec.sources, MetricSignal.ENGINES)
    if spec.sources and not (engines and engines.has_own_labels):
        return None
    return RegistryAgreement(alias=spec.model.target, hold=promotion_window(spec) + SLACK)
