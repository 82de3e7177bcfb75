"""Asks a Prometheus what gates on it want to know, over the same window as everything else is counted in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gates.analyses.queries.asked import BothArmsGate, PrometheusGate, QuerySource, Window
from gates.analyses.queries.guard import GuardGate
from gates.evidence.batch import ArmName, Batch
from gates.model import ArmKey, NoData
from gates.ports import EvidenceSource
from tidegate.core.model import SpecModel


def asking_prometheus(settings: Mapping[str, SpecModel]) -> dict[str, PrometheusGate]:
    """Those gates that ask a team's Prometheus, by name."""
    return {gate: each for gate, each in settings.items() if isinstance(each, PrometheusGate)}


class WithQueries:
    """An evidence source, and what its gates' queries say of the same arms and windows."""

    def __init__(self, source: EvidenceSource, queries: QuerySource, gates: Mapping[str, PrometheusGate]) -> None:
        """`gates` are those that are asked, by name."""
        self._source, self._queries, self._gates = source, queries, gates

    @property
    def settles_within(self) -> timedelta:
        """As the source below."""
        return self._source.settles_within

    def batch(self, stable: ArmKey, canary: ArmKey, since: datetime, until: datetime) -> Batch:
        """As the source below; where a series is not there, the reason is among what is missing."""
        batch = self._source.batch(stable, canary, since, until)
        window, keys = Window(since, until), {ArmName.STABLE: stable, ArmName.CANARY: canary}
        more: dict[str, Any] = {"missing": dict(batch.missing)}
        for name, gate in self._gates.items():
            for found, told in self._told(gate, keys, window):
                if isinstance(told, NoData):
                    more["missing"].setdefault(name, told.reason)
                    continue
                of_gates = more.setdefault(found, {})
                of_gates[name] = of_gates.get(name, ()) + told if isinstance(told, tuple) else told
        return batch.model_copy(update=more)

    def _told(self, gate: PrometheusGate, keys: Mapping[ArmName, ArmKey], window: Window) -> list[tuple[str, Any]]:
        """By field of a batch, what it holds for the gate."""
        if isinstance(gate, BothArmsGate):
            return [(gate.holds, gate.of_arm(self._queries, arm, key, window)) for arm, key in keys.items()]
        assert isinstance(gate, GuardGate), f"no way to ask for {type(gate).__name__}"
        return [("measured", self._queries.value(gate.query, keys[ArmName.CANARY], window))]
