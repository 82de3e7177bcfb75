"""A dashboard as the JSON that Grafana imports: the same dashboard is the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as grafana

from slo.dashboards.conventions import DATASOURCE, FIRING, IN_REGION, OF_SERVICE, REGION, VERSION
from slo.dashboards.dated import Json, up_to_date
from slo.dashboards.drawing import PROMETHEUS, drawn
from slo.dashboards.layout import placed
from slo.dashboards.model import Dashboard, Panel
from slo.metrics import SERVICE

TAG = "tidegate"
ANYTHING = ".*"
"""What a variable stands for when nothing is chosen: series without the label are seen, too."""

VARIABLE_QUERIES = {
    REGION: f"label_values(tidegate:requests:rate1m{{{OF_SERVICE}}}, {REGION})",
    VERSION: f"label_values(tidegate:requests:rate1m{{{IN_REGION}}}, {VERSION})",
}


def dashboard_json(dashboard: Dashboard, siblings: Sequence[Dashboard] = ()) -> str:
    """One file for Grafana; `siblings` are the dashboards that its links lead to, itself left out."""
    built = (
        build.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG, dashboard.service])
        .editable()
        .tooltip(grafana.DashboardCursorSync.CROSSHAIR)
        .time(f"now-{dashboard.since}", "now")
        .timezone("browser")
        .refresh("30s")
        .variables([_datasource(), _service(dashboard.service), *(_labels(name) for name in VARIABLE_QUERIES)])
        .annotations([_alerts()])
        .links([_link(sibling) for sibling in siblings if sibling.uid != dashboard.uid])
    )
    for number, (part, place) in enumerate(placed(dashboard.rows), start=1):
        if isinstance(part, Panel):
            built.with_panel(drawn(part, place, number))
        else:
            position = grafana.GridPos(x=place.x, y=place.y, w=place.width, h=place.height)
            built.with_row(build.Row(part.title).id(number).grid_pos(position))
    plain: Json = json.loads(json.dumps(built.build(), cls=JSONEncoder))
    return json.dumps(up_to_date(plain), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _datasource() -> build.DatasourceVariable:
    return build.DatasourceVariable(DATASOURCE).label("Prometheus").type("prometheus")


def _service(name: str) -> build.CustomVariable:
    """Hidden, and with one value: the title and the lines are those of one service.

    A constant would be the word for it, but older Grafanas read a constant's value only where it is edited.
    """
    only = grafana.VariableOption(selected=True, text=name, value=name)
    hidden = grafana.VariableHide.HIDE_VARIABLE
    return build.CustomVariable(SERVICE).values(name).current(only).options([only]).hide(hidden)


def _labels(name: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(name.capitalize())
        .datasource(PROMETHEUS)
        .query(VARIABLE_QUERIES[name])
        .refresh(grafana.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(grafana.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(ANYTHING)
        .current(grafana.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _alerts() -> build.AnnotationQuery:
    return build.AnnotationQuery().name("Alerts").datasource(PROMETHEUS).enable(True).icon_color("red").expr(FIRING)


def _link(other: Dashboard) -> build.DashboardLink:
    return (
        build.DashboardLink(other.title)
        .type(grafana.DashboardLinkType.LINK)
        .url(f"/d/{other.uid}")
        .icon("dashboard")
        .tooltip(other.description)
        .include_vars(True)
        .keep_time(True)
    )
