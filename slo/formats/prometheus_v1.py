"""Sloth's own format, `version: prometheus/v1`."""

from __future__ import annotations

from typing import Literal

from slo.formats.sloth_parts import ServicePart
from slo.model import SloGroup

VERSION = "prometheus/v1"


class PrometheusV1(ServicePart):
    """The document: the SLOs of one service, and the format's version."""

    version: Literal["prometheus/v1"]

    def group(self) -> SloGroup:
        """Labels merged, the inner ones winning."""
        return SloGroup(slos=self.merged(), mode="cli-gen-prom", spec=VERSION)
