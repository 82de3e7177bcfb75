"""Sloth's own format, `version: prometheus/v1`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from slo.formats.parts import LabelTexts, Name
from slo.formats.sloth_parts import PluginsPart, SloPart
from slo.model import SloGroup
from tidegate.core.model import SpecModel, at_odds

VERSION = "prometheus/v1"


class PrometheusV1(SpecModel):
    """The SLOs of one service."""

    version: Literal["prometheus/v1"]
    service: Name
    labels: LabelTexts = Field(default_factory=dict)
    slo_plugins: PluginsPart = PluginsPart()
    slos: tuple[SloPart, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _counts_what_it_corrects(self) -> Self:
        if self.slo_plugins.chain and any(slo.sli.raw for slo in self.slos):
            raise at_odds("a correction of all denominators over a raw SLI", "SLIs of events")
        return self

    def group(self) -> SloGroup:
        """Labels merged, the inner ones winning."""
        corrected = bool(self.slo_plugins.chain)
        slos = tuple(part.slo(service=self.service, labels=self.labels, corrected=corrected) for part in self.slos)
        return SloGroup(slos=slos, mode="cli-gen-prom", spec=VERSION)
