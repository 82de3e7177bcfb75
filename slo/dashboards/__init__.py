"""Grafana dashboards of a service: on-call, ML engineering, cost. Every query is on what engines and rules export."""

from slo.dashboards.all_levels import dashboards_of
from slo.dashboards.model import Dashboard
from slo.dashboards.outputs import dashboard_json

__all__ = ["Dashboard", "dashboard_json", "dashboards_of"]
