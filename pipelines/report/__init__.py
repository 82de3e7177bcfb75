"""One self-contained HTML page about one or more deliveries: no script, no outside resource."""

from pipelines.report.model import DeliveryRecord
from pipelines.report.render import render_report

__all__ = ["DeliveryRecord", "render_report"]
