"""Recording rules of the signals that gates and dashboards share, by service, region, role and version."""

from slo.signals.groups import signal_groups

__all__ = ["signal_groups"]
