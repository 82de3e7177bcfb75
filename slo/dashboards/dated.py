"""What the SDK for Grafana 10.1 writes and later ones no longer know, so that new and old read the same file gladly."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_OF_INTERVALS = ("auto", "auto_count", "auto_min", "id")
"""The SDK gives every variable what only an interval has, and an id of zeros."""


def up_to_date(dashboard: Json) -> Json:
    """The same dashboard, without what a newer Grafana would have to migrate or to ignore."""
    dashboard.pop("style", None)
    for variable in dashboard["templating"]["list"]:
        for key in _OF_INTERVALS:
            variable.pop(key, None)
    for annotation in dashboard["annotations"]["list"]:
        # A query like any other; at the top level it is the form of Grafana 8.
        annotation["target"] = {
            "datasource": annotation["datasource"],
            "expr": annotation.pop("expr"),
            "refId": "Anno",
        }
    for panel in dashboard["panels"]:
        if panel["type"] == "heatmap":
            # `show` became `mode`; either Grafana shows it when nothing is said.
            panel["options"].pop("tooltip", None)
    return dashboard
