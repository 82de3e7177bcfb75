"""Grafana dashboards of a service: L1 on-call, L2 ML engineering, L3 cost.

Their panels are in the JSON files of this folder, with placeholders such as `<ttft>`; `fill` puts a service's SLOs in
their place, and `grafana` writes what Grafana imports. To change a panel, change its file.
"""

from slo.dashboards.fill import dashboards_of
from slo.dashboards.grafana import dashboard_json
from slo.dashboards.model import Dashboard

__all__ = ["Dashboard", "dashboard_json", "dashboards_of"]
