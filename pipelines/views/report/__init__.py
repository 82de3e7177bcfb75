"""One self-contained HTML page about one or more deliveries: no script, no outside resource."""

from pipelines.views.report.figures import DeliveryRecord
from pipelines.views.report.render import render_report

__all__ = ["DeliveryRecord", "render_report"]
